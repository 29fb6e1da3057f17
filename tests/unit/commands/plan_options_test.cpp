#include "commands/plan_options.h"

#include "hasten/machine/gpus.h"
#include "unit/options/support.h"

namespace commands_plan_options_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("plan options: the limit is a number of bytes with a unit") {
  const auto limit = [](const std::string& memory) {
    return parse_plan({"--memory", memory, "bert-base"}, {}).memory_bytes;
  };
  CHECK(limit("16G") == std::int64_t{16} << 30);
  CHECK(limit("1.5GB") == 1'500'000'000);
  for (const char* wrong : {"16 potatoes", "nan", "0x10"}) {
    CAPTURE(wrong);
    CHECK(error_of([&] { limit(wrong); }).code == "config.bad-value");
  }
}

TEST_CASE("plan options: options of estimate and train are accepted too") {
  const PlanConfiguration run =
      parse_plan({"--memory", "4GiB", "bert-base", "--batch", "32", "--keep_effective_batch",
                  "--use", "bf16", "--learning_rate", "1e-4"},
                 {});
  CHECK(run.memory_bytes == std::int64_t{4} << 30);
  CHECK(run.keep_effective_batch);
  CHECK(run.use == std::vector<std::string>{"bf16"});
  CHECK(run.step.train.arguments.per_device_train_batch_size == 32);
  CHECK(run.step.train.arguments.learning_rate == 1e-4);
  CHECK(run.step.train.options.model == "bert-base");
}

TEST_CASE("plan options: a GPU's memory is the limit unless another is named") {
  const PlanConfiguration run = parse_plan({"bert-base", "--device", "cuda:t4"}, {});
  CHECK(run.memory_bytes == find_gpu("cuda:t4").memory);
  CHECK_THROWS_AS(parse_plan({"bert-base"}, {}), ConfigError);
  CHECK_THROWS_AS(parse_plan({"bert-base", "--memory", "1GiB", "--measure"}, {}), ConfigError);
}

TEST_CASE("plan options: options without a meaning for a plan are refused") {
  const auto refused = [](Texts arguments) {
    arguments.insert(arguments.begin(), {"bert-base", "--memory", "4GiB"});
    return error_of([&] { parse_plan(arguments, {}); });
  };
  for (const Texts& arguments : std::vector<Texts>{{"--measure"},
                                                   {"--html", "page.html"},
                                                   {"--output", "report.json"},
                                                   {"--steps", "1"},
                                                   {"--mode", "inference"},
                                                   {"--mode", "generate"},
                                                   {"--tpu", "v5e:2x2"}}) {
    CAPTURE(arguments.front());
    const CaughtError error = refused(arguments);
    CHECK(error.code == "config.contradiction");
    CHECK_MESSAGE(contains(error.text, "has no meaning for hasten plan"), error.text);
  }
  CHECK(refused({"--lora_adapter", "folder"}).code == "config.contradiction");
  CHECK(refused({"--exactness", "rough"}).code == "config.bad-value");
  CHECK(refused({"--memry", "1GiB"}).code == "config.unknown-key");
  CHECK(refused({"--batch", "0"}).code == "config.out-of-range");
}

TEST_CASE("plan options: a limit above the GPU's memory is refused") {
  const CaughtError error = error_of([] {
    parse_plan({"bert-base", "--device", "cuda:t4", "--memory", "16GiB"}, {});
  });
  CHECK(error.code == "config.out-of-range");
  CHECK_MESSAGE(contains(error.text, "--memory: got 16GiB, expected at most the memory of cuda:t4"),
                error.text);
  CHECK(parse_plan({"bert-base", "--device", "cuda:t4", "--memory", "14GiB"}, {}).memory_bytes ==
        std::int64_t{14} << 30);
}

TEST_CASE("plan options: what_if needs no limit and no choice of techniques") {
  const PlanConfiguration run = parse_plan({"--what_if", "bert-base", "--batch", "4"}, {});
  CHECK(run.step.what_if);
  CHECK(run.memory_bytes == 0);
  CHECK(parse_plan({"--what_if", "bert-base", "--device", "cuda:t4"}, {}).memory_bytes > 0);
  CHECK(parse_plan({"--what_if", "bert-base", "--tpu", "v5e:2x2"}, {}).memory_bytes == 0);
  CHECK(parse_plan({"--what_if", "gpt2", "--mode", "generate"}, {}).step.mode ==
        EstimateMode::generation);
  for (const Texts& arguments : std::vector<Texts>{{"--use", "bf16"},
                                                   {"--avoid", "bf16"},
                                                   {"--exactness", "exact"},
                                                   {"--keep_effective_batch"}}) {
    CAPTURE(arguments.front());
    Texts all = {"--what_if", "bert-base"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    CHECK(error_of([&] { parse_plan(all, {}); }).code == "config.contradiction");
  }
}

TEST_CASE("plan options: a program comes after two dashes, and has arguments of its own") {
  const PlanConfiguration run = parse_plan(
      {"--memory", "1GiB", "--use", "bf16", "--json", "--", "./train", "--epochs", "3"}, {});
  CHECK(run.program == std::vector<std::string>{"./train", "--epochs", "3"});
  CHECK(run.memory_bytes == 1 << 30);
  CHECK(run.step.json);
  CHECK(run.step.device == "cpu");
  const PlanConfiguration on_gpu = parse_plan({"--device=cuda:t4", "--", "./train"}, {});
  CHECK(on_gpu.step.device == "cuda:t4");
  CHECK(on_gpu.memory_bytes == find_gpu("cuda:t4").memory);
  CHECK(parse_plan({"--what_if", "--", "./train"}, {}).step.what_if);
  CHECK(parse_plan({"--help", "--", "./train"}, {}).step.help);
  CHECK_FALSE(parse_plan({"--memory", "1GiB", "--", "./train", "--techniques"}, {}).techniques);
  CHECK(parse_plan({"--techniques"}, {}).techniques);
  const auto code = [](const Texts& arguments) {
    return error_of([&] { parse_plan(arguments, {}); }).code;
  };
  CHECK(code({"--memory", "1GiB", "--"}) == "config.missing");
  CHECK(code({"--", "./train"}) == "config.missing");
  CHECK(code({"--memory", "1GiB", "--batch", "4", "--", "./train"}) == "config.unknown-key");
  CHECK(code({"--device", "cuda:abacus", "--", "./train"}) == "config.unknown-device");
  CHECK(code({"bert-base", "--memory", "1GiB", "--", "./train"}) != "no error");
}

}  // namespace commands_plan_options_test
