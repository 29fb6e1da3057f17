#include "commands/plan_options.h"

#include "hasten/machine/gpus.h"
#include "unit/options/support.h"

namespace commands_plan_options_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("plan options: the limit is a number of bytes with a unit") {
  CHECK(parse_memory("4096") == 4096);
  CHECK(parse_memory("16GiB") == std::int64_t{16} << 30);
  CHECK(parse_memory("16 gib") == std::int64_t{16} << 30);
  CHECK(parse_memory("16G") == std::int64_t{16} << 30);
  CHECK(parse_memory("1.5GB") == 1'500'000'000);
  for (const char* wrong : {"", "GiB", "0", "-1GiB", "16 potatoes", "nan", "1e30"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_memory(wrong), ConfigError);
  }
}

TEST_CASE("plan options: they come with those of estimate and train") {
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

TEST_CASE("plan options: a program comes after two dashes") {
  const PlanConfiguration run =
      parse_plan({"--memory", "1GiB", "--batch", "4", "--", "./train", "--epochs", "3"}, {});
  CHECK(run.program == std::vector<std::string>{"./train", "--epochs", "3"});
  CHECK_THROWS_AS(parse_plan({"--memory", "1GiB", "--"}, {}), ConfigError);
}

}  // namespace commands_plan_options_test
