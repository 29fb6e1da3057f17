#include "commands/observe_options.h"

#include "unit/options/support.h"

using namespace hasten;
using namespace hasten::test;

namespace {

ObserveOptions parsed(const std::string& command, const std::vector<std::string>& words) {
  return parse_observe(words, command);
}

}  // namespace

TEST_CASE("listen: a value follows a space or an equals sign") {
  const ObserveOptions spaced = parsed("estimate", {"--steps", "5", "--device", "cpu", "--output",
                                                    "a=b.json", "--", "./train", "--steps=9"});
  const ObserveOptions joined = parsed(
      "estimate", {"--steps=5", "--device=cpu", "--output=a=b.json", "--", "./train", "--steps=9"});
  for (const ObserveOptions& options : {spaced, joined}) {
    CHECK(options.steps == 5);
    CHECK(options.device == "cpu");
    CHECK(options.output == "a=b.json");
    CHECK(options.program == Words{"./train", "--steps=9"});
  }
  CHECK(parsed("anatomy", {"--html=page.html", "./train"}).output == "page.html");
}

TEST_CASE("listen: only names that the command knows are suggested") {
  CHECK(error_of([] {
          parsed("anatomy", {"--device", "cpu", "./train"});
        }).text == "unknown argument --device. Hint: options of the program follow its name");
  CHECK(error_of([] {
          parsed("anatomy", {"--stops=3", "./train"});
        }).text == "unknown argument --stops=3. Hint: did you mean --steps?");
  CHECK(error_of([] {
          parsed("estimate", {"--divice", "cpu", "--", "./train"});
        }).text == "unknown argument --divice. Hint: did you mean --device?");
  CHECK(error_of([] { parsed("anatomy", {"--steps"}); }).text == "--steps has no value");
}
