#include "commands/generate_options.h"

#include "unit/options/support.h"

namespace commands_generate_options_test {

using namespace hasten;
using namespace hasten::test;

namespace {

std::optional<EarlyStoppingChoice> early_stopping(const std::string& name) {
  return parse_generate({"--model", "gpt2", "--prompt", "x", "--early_stopping", name})
      .early_stopping;
}

}  // namespace

TEST_CASE("generate options: early_stopping takes the names of Python and no others") {
  CHECK(parse_generate({"--model", "gpt2", "--prompt", "x"}).early_stopping == std::nullopt);
  for (const char* const name : {"true", "True", "yes", "1"})
    CHECK(early_stopping(name) == EarlyStoppingChoice::yes);
  for (const char* const name : {"false", "False", "no", "0"})
    CHECK(early_stopping(name) == EarlyStoppingChoice::no);
  CHECK(early_stopping("never") == EarlyStoppingChoice::never);
  const auto caught = error_of([] { early_stopping("always"); });
  CHECK(caught.code == "config.bad-value");
  CHECK(
      contains(caught.text, "--early_stopping: got 'always', expected one of false, true, never"));
}

}  // namespace commands_generate_options_test
