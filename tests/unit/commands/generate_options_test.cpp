#include "commands/generate_options.h"

#include "unit/options/support.h"

namespace commands_generate_options_test {

using namespace hasten;
using namespace hasten::test;

namespace {

std::optional<EarlyStoppingWord> early_stopping(const std::string& word) {
  return parse_generate({"--model", "gpt2", "--prompt", "x", "--early_stopping", word})
      .early_stopping;
}

}  // namespace

TEST_CASE("generate options: early_stopping takes the words of Python and no others") {
  CHECK(parse_generate({"--model", "gpt2", "--prompt", "x"}).early_stopping == std::nullopt);
  for (const char* const word : {"true", "True", "yes", "1"})
    CHECK(early_stopping(word) == EarlyStoppingWord::yes);
  for (const char* const word : {"false", "False", "no", "0"})
    CHECK(early_stopping(word) == EarlyStoppingWord::no);
  CHECK(early_stopping("never") == EarlyStoppingWord::never);
  const auto caught = error_of([] { early_stopping("always"); });
  CHECK(caught.code == "config.bad-value");
  CHECK(
      contains(caught.text, "--early_stopping: got 'always', expected one of false, true, never"));
}

}  // namespace commands_generate_options_test
