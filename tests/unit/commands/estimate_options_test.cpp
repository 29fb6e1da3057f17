#include "commands/estimate_options.h"

#include "unit/options/support.h"

using namespace hasten;
using namespace hasten::test;

namespace {

EstimateConfiguration parsed(const std::vector<std::string>& words) {
  return parse_estimate(words, {});
}

}  // namespace

TEST_CASE("estimate options: a flag without a value does not consume the model after it") {
  const std::vector<std::vector<std::string>> lines = {
      {"--bf16", "bert-base"},
      {"--bf16", "yes", "bert-base"},
      {"bert-base", "--bf16"},
      {"--no_dataloader_pin_memory", "bert-base", "--bf16"},
      {"--disable_tqdm", "none", "bert-base", "--bf16"},
      {"--seed", "7", "bert-base", "--bf16"}};
  for (const std::vector<std::string>& words : lines) {
    CAPTURE(words[0]);
    CAPTURE(words[1]);
    const EstimateConfiguration run = parsed(words);
    CHECK(run.train.options.model == "bert-base");
    CHECK(run.train.arguments.bf16);
  }
}
