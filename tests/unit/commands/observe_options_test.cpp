#include "commands/observe_options.h"

#include "unit/options/support.h"

namespace commands_observe_options_test {

using namespace hasten;
using namespace hasten::test;

namespace {

ObserveOptions parse_arguments(const std::string& command,
                               const std::vector<std::string>& arguments) {
  return parse_observe(arguments, command);
}

}  // namespace

TEST_CASE("observe options: a value follows a space or an equals sign") {
  const ObserveOptions spaced = parse_arguments(
      "estimate",
      {"--steps", "5", "--device", "cpu", "--output", "a=b.json", "--", "./train", "--steps=9"});
  const ObserveOptions joined = parse_arguments(
      "estimate", {"--steps=5", "--device=cpu", "--output=a=b.json", "--", "./train", "--steps=9"});
  for (const ObserveOptions& options : {spaced, joined}) {
    CHECK(options.steps == 5);
    CHECK(options.device == "cpu");
    CHECK(options.output == "a=b.json");
    CHECK(options.program == Texts{"./train", "--steps=9"});
  }
  CHECK(parse_arguments("anatomy", {"--html=page.html", "./train"}).output == "page.html");
}

TEST_CASE("observe options: the last of the flags for the output and for the device counts") {
  CHECK(parse_arguments("anatomy", {"./train"}).output == "text");
  CHECK(parse_arguments("anatomy", {"--html", "page.html", "--json", "./train"}).output == "json");
  CHECK(parse_arguments("anatomy", {"--json", "--output=a.json", "./train"}).output == "a.json");
  CHECK(parse_arguments("estimate", {"--tpu=v5e:2x2", "--device=cpu", "--", "./train"}).device ==
        "cpu");
  CHECK(parse_arguments("anatomy", {"--json", "false", "./train"}).program == Texts{"./train"});
}

TEST_CASE("observe options: a program is required unless help is requested") {
  CHECK(error_of([] { parse_arguments("anatomy", {"--steps", "2"}); }).code == "config.missing");
  CHECK(error_of([] { parse_arguments("estimate", {"--"}); }).code == "config.missing");
  CHECK(parse_arguments("anatomy", {"--help"}).help);
  CHECK_FALSE(parse_arguments("anatomy", {"./train", "--help"}).help);
}

TEST_CASE("observe options: only names that the command knows are suggested") {
  CHECK(error_of([] {
          parse_arguments("anatomy", {"--device", "cpu", "./train"});
        }).text == "unknown argument --device. Hint: --help lists every name");
  CHECK(error_of([] {
          parse_arguments("anatomy", {"--stops=3", "./train"});
        }).text == "unknown argument --stops. Hint: did you mean --steps?");
  CHECK(error_of([] {
          parse_arguments("estimate", {"--divice", "cpu", "--", "./train"});
        }).text == "unknown argument --divice. Hint: did you mean --device?");
  CHECK(error_of([] { parse_arguments("anatomy", {"--steps"}); }).text ==
        "--steps has no value: expected a whole number of at least 1");
}

}  // namespace commands_observe_options_test
