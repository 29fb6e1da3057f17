// Tests the Trainer on device tpu: runs of the Hugging Face Trainer, the number of compilations,
// and checkpoints.
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/data/token_dataset.h"
#include "oracle/trainer_cases.h"
#include "tpu/programs.h"

namespace tpu_trainer_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

// The fused attention compiles only for TPUs.
constexpr auto kEager = AttentionImplementation::eager;

void use_tpu() { setenv("ACCELERATE_USE_TPU", "true", 1); }

// Rows of 5 to 30 tokens.
TrainerDataset ragged_rows(std::int64_t count) {
  TokenDataset rows;
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < 5 + row * 7 % 26; ++t)
      ids.push_back(static_cast<std::int32_t>(1 + (row * 31 + t * 17) % 99));
    labels.push_back(ids[0] % 2);
    rows.push_back(ids);
  }
  rows.set_labels(at::tensor(labels));
  return TrainerDataset(std::move(rows), DataCollatorWithPadding{});
}

TrainingArguments arguments(const fs::path& folder, bool cpu) {
  return {.output_dir = folder.string(),
          .per_device_train_batch_size = 8,
          .per_device_eval_batch_size = 8,
          .num_train_epochs = 3,
          .learning_rate = 1e-3,
          .use_cpu = cpu,
          .logging_steps = 1,
          .save_strategy = SaveStrategy::no};
}

// Records the number of compiled programs at the end of each epoch.
struct ProgramCounter : TrainerCallback {
  bool reads_losses() const override { return false; }
  void on_epoch_end(const TrainerEvent&, TrainerControl&) override {
    per_epoch.push_back(programs());
  }
  std::vector<std::int64_t> per_epoch;
};

std::vector<double> logged(const Trainer& trainer, const std::string& name) {
  std::vector<double> values;
  for (const LogEntry& entry : trainer.state().log_history) {
    const auto found = entry.find(name);
    if (found != entry.end()) values.push_back(found->second);
  }
  return values;
}

void check_near(const std::vector<double>& values, const std::vector<double>& expected,
                double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(values[i] - expected[i]) <= tolerance);
  }
}

double largest_difference(const PreTrainedModel& one, const PreTrainedModel& other) {
  const TensorDict a = one.state_dict(), b = other.state_dict();
  double largest = 0;
  for (const auto& [name, tensor] : a) {
    const double here = (tensor.cpu() - b.at(name).cpu()).abs().max().item<double>();
    largest = std::max(largest, here);
  }
  return largest;
}

}  // namespace

TEST_CASE("tpu: log entries and weights equal those of the Hugging Face Trainer") {
  use_tpu();
  for (const fs::path& file : cases()) {
    const std::string name = file.filename().string();
    if (name == "activation_checkpointing.json") continue;  // a TPU refuses it
    CAPTURE(name);
    run_case(file, {.use_cpu = false, .attention = kEager});
  }
}

TEST_CASE("tpu: training and evaluation of uneven data compile nothing after the first epoch") {
  use_tpu();
  const TemporaryDirectory folder;
  std::vector<double> losses, scores, accuracies;
  for (const bool cpu : {true, false}) {
    CAPTURE(cpu);
    TrainingArguments args = arguments(folder.path(), cpu);
    args.overwrite_output_dir = true;
    args.eval_strategy = IntervalStrategy::epoch;
    const auto count = std::make_shared<ProgramCounter>();
    Trainer trainer(base_model(kEager), args,
                    {.train_dataset = ragged_rows(45),  // the last batch has 5 rows
                     .eval_dataset = ragged_rows(19),
                     .compute_metrics = std::make_shared<Accuracy>()});
    if (!cpu) trainer.add_callback(count);
    trainer.train();
    if (cpu) {
      losses = logged(trainer, "loss");
      scores = logged(trainer, "eval_loss");
      accuracies = logged(trainer, "eval_accuracy");
      CHECK(losses.size() == 18);
      continue;
    }
    check_near(logged(trainer, "loss"), losses, 1e-5);
    check_near(logged(trainer, "eval_loss"), scores, 1e-5);
    check_near(logged(trainer, "eval_accuracy"), accuracies, 0);
    REQUIRE(count->per_epoch.size() == 3);
    CHECK(count->per_epoch[2] == count->per_epoch[1]);  // the first evaluation is after epoch 0
    const PredictionOutput predicted = trainer.predict(ragged_rows(19));
    CHECK(predicted.predictions.size(0) == 19);
    CHECK(programs() == count->per_epoch[2]);
  }
}

TEST_CASE("tpu: losses that stay on the device are logged like losses that are read each step") {
  use_tpu();
  const TemporaryDirectory folder;
  std::vector<double> each;
  for (const std::int64_t steps : {1, 6}) {
    TrainingArguments args = arguments(folder.path(), false);
    args.overwrite_output_dir = true;
    args.logging_steps = static_cast<double>(steps);
    Trainer trainer(base_model(kEager), args, {.train_dataset = ragged_rows(45)});
    const TrainOutput result = trainer.train();
    const std::vector<double> losses = logged(trainer, "loss");
    if (steps == 1) {
      each = losses;
      continue;
    }
    std::vector<double> means;
    for (std::size_t i = 0; i < each.size(); i += 6)
      means.push_back(std::accumulate(each.begin() + i, each.begin() + i + 6, 0.0) / 6);
    check_near(losses, means, 1e-6);
    CHECK(result.training_loss ==
          doctest::Approx(std::accumulate(each.begin(), each.end(), 0.0) / 18).epsilon(1e-6));
  }
}

TEST_CASE("tpu: callbacks and hash chain links get the loss of their own step") {
  use_tpu();
  const TemporaryDirectory folder;
  struct LossRecorder : TrainerCallback {
    void on_step_end(const TrainerEvent&, TrainerControl&, double loss) override {
      losses.push_back(loss);
    }
    std::vector<double> losses;
  };
  TrainingArguments args = arguments(folder.path() / "each", false);
  args.max_steps = 7;
  Trainer each(base_model(kEager), args, {.train_dataset = ragged_rows(45)});
  each.train();
  const std::vector<double> expected = logged(each, "loss");

  args.output_dir = (folder.path() / "late").string();
  args.logging_steps = 5;
  args.hash_chain_steps = 3;
  Trainer(base_model(kEager), args, {.train_dataset = ragged_rows(45)}).train();
  std::vector<double> of_links;
  for (const HashLink& link : read_hash_chain(folder.path() / "late" / kHashChainFile))
    of_links.push_back(link.loss);
  check_near(of_links, {expected.at(2), expected.at(5)}, 1e-6);

  args.output_dir = (folder.path() / "kept").string();
  args.hash_chain_steps = 0;
  const auto keep = std::make_shared<LossRecorder>();
  Trainer kept(base_model(kEager), args, {.train_dataset = ragged_rows(45), .callbacks = {keep}});
  kept.train();
  check_near(keep->losses, expected, 1e-6);
}

TEST_CASE("tpu: a nonfinite loss is reported with its step, although it is read later") {
  use_tpu();
  const TemporaryDirectory folder;
  struct NanInjector : TrainerCallback {
    bool reads_losses() const override { return false; }
    void on_step_begin(const TrainerEvent& event, TrainerControl&) override {
      if (event.state.global_step != 3) return;
      const torch::NoGradGuard no_grad;
      at::Tensor weight = event.model.parameters().front();
      weight.fill_(std::nan(""));
    }
  };
  std::vector<std::string> lines;
  TrainingArguments args = arguments(folder.path(), false);
  args.logging_steps = 6;
  args.max_steps = 6;
  Trainer trainer(base_model(kEager), args,
                  {.train_dataset = ragged_rows(45),
                   .callbacks = {std::make_shared<NanInjector>()},
                   .log_sink = [&](std::string_view line) { lines.emplace_back(line); }});
  SUBCASE("reported") {
    trainer.train();
    CHECK(logged(trainer, "nonfinite_losses") ==
          std::vector<double>{3, 3});  // since the last log, and in total
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("step 4 is NaN, the first of 3 losses read together") != std::string::npos);
  }
  SUBCASE("ends the run at once with stop_on_nonfinite_loss") {
    TrainingArguments strict = args;
    strict.stop_on_nonfinite_loss = true;
    strict.overwrite_output_dir = true;
    Trainer stopping(
        base_model(kEager), strict,
        {.train_dataset = ragged_rows(45), .callbacks = {std::make_shared<NanInjector>()}});
    CHECK_THROWS_AS(stopping.train(), DivergedError);
    CHECK(stopping.state().global_step == 3);  // before the optimizer makes the fourth step
  }
}

TEST_CASE("tpu: a resumed run equals an uninterrupted one, including dropout") {
  use_tpu();
  const TemporaryDirectory folder;
  TrainingArguments args = arguments(folder.path() / "whole", false);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  const auto model = [] {
    return load_model((kData / "base/config.json").string(),
                      {.hidden_dropout = 0.1,
                       .attention_dropout = 0.1,
                       .attn_implementation = kEager,
                       .weights = kData / "base/init.safetensors"})
        .model;
  };
  const auto whole = model(), resumed = model();
  Trainer(whole, args, {.train_dataset = ragged_rows(45)}).train();
  args.resume_from_checkpoint = (folder.path() / "whole/checkpoint-5").string();
  args.output_dir = (folder.path() / "resumed").string();
  Trainer(resumed, args, {.train_dataset = ragged_rows(45)}).train();
  CHECK(largest_difference(*whole, *resumed) == 0);
}

TEST_CASE("tpu: a run moves between the TPU and the CPU by a checkpoint") {
  use_tpu();
  const TemporaryDirectory folder;
  TrainingArguments args = arguments(folder.path() / "whole", true);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  const auto reference = base_model(kEager);
  Trainer(reference, args, {.train_dataset = ragged_rows(45)}).train();
  for (const bool cpu_first : {true, false}) {
    CAPTURE(cpu_first);
    const std::string name = cpu_first ? "cpu-first" : "tpu-first";
    args.output_dir = (folder.path() / name).string();
    args.resume_from_checkpoint.clear();
    args.use_cpu = cpu_first;
    args.max_steps = 18;
    struct StopAtStep10Callback : TrainerCallback {
      void on_step_end(const TrainerEvent& event, TrainerControl& control, double) override {
        control.should_training_stop = event.state.global_step == 10;
      }
    };
    Trainer(
        base_model(kEager), args,
        {.train_dataset = ragged_rows(45), .callbacks = {std::make_shared<StopAtStep10Callback>()}})
        .train();
    args.resume_from_checkpoint = "true";
    args.use_cpu = !cpu_first;
    const auto model = base_model(kEager);
    Trainer(model, args, {.train_dataset = ragged_rows(45)}).train();
    CHECK(largest_difference(*model, *reference) < 1e-5);
  }
}

TEST_CASE("tpu: hasten counts the same compiled programs as the plugin") {
  use_tpu();
  const Accelerator accelerator({.tpu = true});
  const std::int64_t hasten_count = accelerator.compiled_programs(), plugin_count = programs();
  const at::Tensor x = at::ones({3, 5, 7}).to(accelerator.device());
  static_cast<void>((x + x).cpu());
  CHECK(accelerator.compiled_programs() == hasten_count + 1);
  CHECK(programs() == plugin_count + 1);
  static_cast<void>((x + x).cpu());
  CHECK(accelerator.compiled_programs() == hasten_count + 1);
}

}  // namespace tpu_trainer_test
