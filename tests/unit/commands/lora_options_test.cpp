// The options of an adapter, as `hasten train`, `hasten estimate` and `hasten plan` read them.
#include "commands/plan_options.h"
#include "unit/options/support.h"

namespace commands_lora_options_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("lora options: without a rank there is no adapter") {
  const TrainConfiguration run = parse_with_model({});
  CHECK(run.options.lora_r == 0);
  CHECK(lora_options_of(run.options).r == 0);
}

TEST_CASE("lora options: every field of LoraOptions is set, and the task determines task_type") {
  const TrainConfiguration run =
      parse_with_model({"--lora_r", "4", "--lora_alpha", "32", "--lora_dropout", "0.25",
                        "--lora_target_modules", "query,key", "--lora_modules_to_save", "pooler",
                        "--lora_bias", "lora_only", "--use_rslora"});
  const LoraOptions lora = lora_options_of(run.options);
  CHECK(lora.r == 4);
  CHECK(lora.alpha == 32);
  CHECK(lora.dropout == 0.25);
  CHECK(lora.target_modules == Texts{"query", "key"});
  CHECK(lora.modules_to_save == Texts{"pooler"});
  CHECK(lora.bias == LoraBias::lora_only);
  CHECK(lora.use_rslora);
  CHECK(lora.task_type == "SEQ_CLS");
  CHECK(lora.base_model == "bert-base");
  const TrainConfiguration language =
      parse({"--model", "gpt2", "--task", "causal-lm", "--data", "dummy", "--lora_r", "8"});
  CHECK(lora_options_of(language.options).task_type == "CAUSAL_LM");
}

TEST_CASE("lora options: wrong values and contradictions are refused") {
  const auto refused = [](const Texts& arguments) {
    return error_of([&] { parse_with_model(arguments); });
  };
  CHECK(refused({"--lora_r", "-1"}).code == "config.out-of-range");
  CHECK(refused({"--lora_r", "8", "--lora_dropout", "1"}).code == "config.out-of-range");
  CHECK(refused({"--lora_r", "eight"}).code == "config.bad-value");
  CHECK(refused({"--lora_r", "8", "--lora_bias", "some"}).code == "config.bad-value");
  CHECK(refused({"--lora_r", "8", "--lora_adapter", "folder"}).code == "config.contradiction");
  for (const Texts& arguments : std::vector<Texts>{{"--lora_alpha", "16"},
                                                   {"--lora_dropout", "0.1"},
                                                   {"--lora_target_modules", "query"},
                                                   {"--lora_modules_to_save", "pooler"},
                                                   {"--lora_bias", "all"},
                                                   {"--use_rslora"}}) {
    CAPTURE(arguments.front());
    const CaughtError error = refused(arguments);
    CHECK(error.code == "config.contradiction");
    CHECK_MESSAGE(contains(error.text, "lora_r is 0, so there is no adapter"), error.text);
  }
}

TEST_CASE("lora options: an estimate and a plan count an adapter by its rank, and read no folder") {
  CHECK(parse_estimate({"bert-base", "--lora_r", "8"}, {}).train.options.lora_r == 8);
  CHECK(parse_plan({"bert-base", "--memory", "4GiB", "--lora_r", "8"}, {})
            .step.train.options.lora_r == 8);
  const CaughtError error = error_of([] {
    parse_estimate({"bert-base", "--lora_adapter", "folder"}, {});
  });
  CHECK(error.code == "config.contradiction");
  CHECK_MESSAGE(contains(error.text, "--lora_r"), error.text);
}

}  // namespace commands_lora_options_test
