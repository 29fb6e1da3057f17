#include "commands/estimate_options.h"

#include "commands/predicted_device.h"
#include "hasten/machine/gpus.h"
#include "unit/options/support.h"

namespace commands_estimate_options_test {

using namespace hasten;
using namespace hasten::test;

namespace {

EstimateConfiguration parse_arguments(const std::vector<std::string>& arguments) {
  return parse_estimate(arguments, {});
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
  for (const std::vector<std::string>& arguments : lines) {
    CAPTURE(arguments[0]);
    CAPTURE(arguments[1]);
    const EstimateConfiguration run = parse_arguments(arguments);
    CHECK(run.train.options.model == "bert-base");
    CHECK(run.train.arguments.bf16);
  }
}

TEST_CASE("estimate options: short names stand for options of hasten train") {
  const EstimateConfiguration run = parse_arguments(
      {"bert-base", "--batch=4", "--seq", "64", "--optim", "adamw", "--precision", "bf16"});
  CHECK(run.train.arguments.per_device_train_batch_size == 4);
  CHECK(run.train.options.dummy_length == 64);
  CHECK(run.train.options.max_length == 64);
  CHECK(run.train.arguments.optim == OptimizerName::adamw_torch_fused);
  CHECK(run.train.arguments.bf16);
  CHECK(parse_arguments({"bert-base", "--optim=sgd"}).train.arguments.optim == OptimizerName::sgd);
  CHECK_FALSE(parse_arguments({"bert-base", "--precision=no"}).train.arguments.bf16);
  // If an option is given under its short and its long name, the last one counts.
  const Texts last = {"bert-base", "--batch=4", "--per_device_train_batch_size=8"};
  CHECK(parse_arguments(last).train.arguments.per_device_train_batch_size == 8);
}

TEST_CASE("estimate options: a wrong value is reported under the name that was used") {
  const auto error = [](const char* flag) {
    return error_of([&] { parse_arguments({"bert-base", flag}); }).text;
  };
  CHECK(error("--batch=0") == "--batch: got '0', expected a whole number of at least 1");
  CHECK(error("--precision=fp8") == "--precision: got 'fp8', expected one of fp32, bf16, fp16");
  CHECK(error("--mode=testing") ==
        "--mode: got 'testing', expected one of training, inference, generate");
  CHECK(error("--bath=4") == "unknown argument --bath. Hint: did you mean --batch?");
}

TEST_CASE("estimate options: a measurement runs on the CPU or on this machine's GPU") {
  const auto code = [](const std::vector<std::string>& arguments) {
    return error_of([&] { (void)parse_arguments(arguments); }).code;
  };
  CHECK(parse_arguments({"bert-base", "--measure"}).device == "cpu");
  CHECK(parse_arguments({"bert-base", "--measure", "--device", "cuda"}).device == "cuda");
  CHECK(code({"bert-base", "--device", "cuda"}) == "config.unknown-device");
  CHECK(code({"bert-base", "--measure", "--device", "cuda:h200"}) == "config.contradiction");
  CHECK(code({"bert-base", "--measure", "--device", "cuda", "--what_if"}) ==
        "config.contradiction");
  CHECK(code({"bert-base", "--measure", "--device", "cuda", "--html", "page.html"}) ==
        "config.contradiction");
}

TEST_CASE("estimate options: an estimate for a TPU has no timeline and no memory snapshot") {
  const auto code = [](const char* device, const char* file) {
    return error_of([&] { (void)parse_arguments({"bert-base", device, "--output", file}); }).code;
  };
  for (const char* const file : {"a.trace.json", "a.pickle"}) {
    CHECK(code("--tpu=v5e:2x2", file) == "config.contradiction");
    CHECK(code("--device=cuda:h200", file) == "no error");
  }
  CHECK(code("--tpu=v5e:2x2", "a.json") == "no error");
}

TEST_CASE("estimate options: the kind of a device follows from its name") {
  for (const char* const device : {"cpu", "cuda", "cuda:v100-16gb", "cuda:tpu", "tpus:v5e:2x2"})
    CHECK(predicted_device_of(device) == nullptr);
  const PredictedDevice* const kind = predicted_device_of("tpu:v5e:2x2");
  REQUIRE(kind != nullptr);
  CHECK(kind == predicted_device_of_option("tpu"));
  CHECK(kind->parse("v5e:2x2") == "tpu:v5e:2x2");
  CHECK(memory_limit_of("cuda:v100-16gb") == find_gpu("cuda:v100-16gb").memory);
  CHECK(memory_limit_of("tpu:v5e:2x2") == 0);
  CHECK(memory_limit_of("cpu") == 0);
}

}  // namespace commands_estimate_options_test
