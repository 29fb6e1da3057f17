// Training arguments that have no test file of their own, and the effect of each.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/trainer/trainer.h"
#include "trainer/run_plan.h"
#include "unit/trainer/tiny.h"

namespace trainer_more_arguments_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

TrainingArguments six_steps(const Folder& folder) {
  return {.output_dir = folder.path.string(),
          .per_device_train_batch_size = 4,
          .max_steps = 6,
          .learning_rate = 1e-2,
          .use_cpu = true,
          .save_strategy = SaveStrategy::no};
}

TrainerParts quiet_parts() {
  return {.train_dataset = TrainerDataset(rows(24)),
          .eval_dataset = TrainerDataset(rows(8)),
          .log_sink = [](std::string_view) {}};
}

// The weights after a run.
TensorDict trained(const TrainingArguments& args) {
  const auto model = new_model();
  Trainer(model, args, quiet_parts()).train();
  return model->state_dict();
}

bool are_equal(const TensorDict& one, const TensorDict& other) {
  for (const auto& [name, tensor] : one) {
    if (!at::equal(tensor, other.at(name))) return false;
  }
  return one.size() == other.size();
}

// The steps at which a key was logged.
std::vector<std::int64_t> steps_of(const Trainer& trainer, const char* key) {
  std::vector<std::int64_t> steps;
  for (const LogEntry& entry : trainer.state().log_history) {
    if (entry.count(key)) steps.push_back(static_cast<std::int64_t>(entry.at("step")));
  }
  return steps;
}

}  // namespace

TEST_CASE("arguments: workers and pinned memory change no result") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  const TensorDict expected = trained(args);
  args.dataloader_num_workers = 2;
  args.dataloader_prefetch_factor = 3;
  args.dataloader_pin_memory = false;
  CHECK(are_equal(trained(args), expected));
  args = six_steps(folder);
  args.torch_empty_cache_steps = 2;
  CHECK(are_equal(trained(args), expected));
}

TEST_CASE("arguments: eval_delay delays evaluations, and logging_first_step logs step 1") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 1;
  args.eval_delay = 4;
  args.logging_first_step = true;
  args.logging_steps = 5;
  Trainer trainer(new_model(), args, quiet_parts());
  trainer.train();
  CHECK(steps_of(trainer, "eval_loss") == std::vector<std::int64_t>{4, 5, 6});
  CHECK(steps_of(trainer, "loss") == std::vector<std::int64_t>{1, 5});
}

TEST_CASE("arguments: load_best_model_at_end evaluates every checkpoint if steps are shares") {
  const auto plan = [](std::int64_t max_steps, double eval_steps, double save_steps) {
    return plan_of({.max_steps = max_steps,
                    .eval_strategy = IntervalStrategy::steps,
                    .eval_steps = eval_steps,
                    .save_steps = save_steps,
                    .load_best_model_at_end = true},
                   max_steps, max_steps, 1);
  };
  CHECK(plan(1001, 0.1, 0.2).eval_steps == 101);
  CHECK(plan(1001, 0.1, 0.2).save_steps == 202);
  CHECK(plan(1000, 0.001, 0.5).save_steps == 500);
  for (std::int64_t steps = 20; steps < 200; ++steps) {
    const Plan shares = plan(steps, 0.07, 0.14);
    CHECK(shares.save_steps % shares.eval_steps == 0);
  }
}

TEST_CASE("arguments: a number of steps beyond 64 bits becomes the largest number") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr double kMostRows = 0x1p63;
  const Plan steps = plan_of({.per_device_train_batch_size = 4, .max_steps = kMost}, 40, 10, 2);
  CHECK(steps.max_steps == kMost);
  CHECK(steps.steps_per_epoch == 10);
  CHECK(steps.epochs == kMost / 10 + 1);
  CHECK(steps.samples == doctest::Approx(8 * kMostRows));
  const Plan stream = plan_of(
      {.per_device_train_batch_size = 4, .max_steps = kMost, .gradient_accumulation_steps = 2}, {},
      {}, 2);
  CHECK(stream.max_steps == kMost);
  CHECK(stream.batches_per_epoch == kMost);
  CHECK(stream.epochs == kMost);
  CHECK(stream.samples == doctest::Approx(16 * kMostRows));
  const Plan epochs = plan_of({.num_train_epochs = 1e19, .save_steps = 1e19}, 40, 10, 1);
  CHECK(epochs.max_steps == kMost);
  CHECK(epochs.epochs == kMost);
  CHECK(epochs.save_steps == kMost);
  const Plan window = plan_of({.gradient_accumulation_steps = kMost}, 40, 10, 1);
  CHECK(window.steps_per_epoch == 1);
  const Plan best = plan_of({.max_steps = 100,
                             .eval_strategy = IntervalStrategy::steps,
                             .eval_steps = 10,
                             .save_steps = 1e19,
                             .load_best_model_at_end = true},
                            40, 10, 1);
  CHECK(best.save_steps == kMost);
}

TEST_CASE("arguments: save_only_model leaves out the optimizer, and save_on_each_node writes") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 3;
  args.save_on_each_node = true;
  trained(args);
  const fs::path whole = folder.path / "checkpoint-3";
  CHECK(fs::exists(whole / "training_position.json"));
  args.save_only_model = true;
  args.overwrite_output_dir = true;
  trained(args);
  CHECK(fs::exists(whole / "model.safetensors"));
  CHECK_FALSE(fs::exists(whole / "training_position.json"));
}

TEST_CASE("arguments: logging_nan_inf_filter leaves losses that are not finite out of the mean") {
  const Folder folder;
  for (const bool filters : {true, false}) {
    CAPTURE(filters);
    TrainingArguments args = six_steps(folder);
    args.logging_steps = 6;
    args.logging_nan_inf_filter = filters;
    TrainerParts parts = quiet_parts();
    int calls = 0;
    parts.compute_loss = [&calls](PreTrainedModel& model, const TensorDict& batch) {
      ModelOutput out = model.forward(batch);
      const bool is_third = ++calls == 3;
      // Its gradient is 0, so that the following losses are finite.
      if (is_third) out.loss = out.loss * 0 + std::numeric_limits<double>::infinity();
      return out;
    };
    Trainer trainer(new_model(), args, parts);
    trainer.train();
    for (const LogEntry& entry : trainer.state().log_history) {
      if (entry.count("loss")) CHECK(std::isfinite(entry.at("loss")) == filters);
    }
  }
}

TEST_CASE("arguments: anatomy_steps sets the number of recorded steps") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.anatomy = "text";
  args.anatomy_steps = 2;
  TrainerParts parts = quiet_parts();
  std::int64_t recorded = 0;
  parts.on_anatomy = [&](const anatomy::Report& report) { recorded = report.steps; };
  Trainer(new_model(), args, parts).train();
  CHECK(recorded == 2);
}

TEST_CASE("arguments: a report of an anatomy that cannot be written is refused before a step") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  make_directories(folder.path);
  write_file_atomically(folder.path / "file", "");
  args.anatomy = (folder.path / "file" / "report.json").string();
  Trainer refused(new_model(), args, quiet_parts());
  CHECK(code_of([&] { refused.train(); }) == "io.not-a-directory");
  CHECK(refused.state().global_step == 0);
  args.anatomy = (folder.path / "new" / "report.json").string();
  Trainer(new_model(), args, quiet_parts()).train();
  CHECK(fs::exists(args.anatomy));
}

TEST_CASE("arguments: bf16_full_eval evaluates in 16 bits") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  const auto model = new_model();
  const double exact = Trainer(model, args, quiet_parts()).evaluate().at("eval_loss");
  args.bf16_full_eval = true;
  const double rounded = Trainer(model, args, quiet_parts()).evaluate().at("eval_loss");
  CHECK(rounded != exact);
  CHECK(rounded == doctest::Approx(exact).epsilon(0.02));
}

TEST_CASE("arguments: full_determinism turns on deterministic algorithms") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.full_determinism = true;
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
  const TensorDict first = trained(args);
  CHECK(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(false, false);
  CHECK(are_equal(trained(args), first));
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("arguments: skip_memory_metrics=false adds the keys of the Hugging Face Trainer") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.skip_memory_metrics = false;
  Trainer trainer(new_model(), args, quiet_parts());
  const Metrics train = trainer.train().metrics, eval = trainer.evaluate(),
                test = trainer.predict(TrainerDataset(rows(8))).metrics;
  const auto keys = [](const Metrics& metrics) {
    std::vector<std::string> found;
    for (const auto& [name, value] : metrics) {
      if (name.find("_mem_") != std::string::npos && name != "train_mem_cpu_peak")
        found.push_back(name);
    }
    return found;
  };
  // The keys that transformers 5.23 returns without a GPU.
  using Keys = std::vector<std::string>;
  CHECK(keys(train) == Keys{"before_init_mem_cpu", "init_mem_cpu_alloc_delta",
                            "init_mem_cpu_peaked_delta", "train_mem_cpu_alloc_delta",
                            "train_mem_cpu_peaked_delta"});
  CHECK(keys(eval) == Keys{"eval_mem_cpu_alloc_delta", "eval_mem_cpu_peaked_delta"});
  CHECK(keys(test) == Keys{"test_mem_cpu_alloc_delta", "test_mem_cpu_peaked_delta"});
  CHECK(train.at("before_init_mem_cpu") > 1e6);
  CHECK(train.at("train_mem_cpu_peaked_delta") >= 0);
  // Only the train metrics are logged, as in transformers.
  for (const LogEntry& entry : trainer.state().log_history)
    CHECK(entry.count("train_mem_cpu_alloc_delta") == entry.count("train_runtime"));
}

TEST_CASE("arguments: skip_memory_metrics=false measures what a step keeps and what it frees") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.skip_memory_metrics = false;
  args.max_steps = 1;
  constexpr std::int64_t kKept = 96 << 20, kFreed = 160 << 20;
  std::vector<char> kept;
  TrainerParts parts = quiet_parts();
  parts.compute_loss = [&](PreTrainedModel& model, const TensorDict& batch) {
    const std::vector<char> freed(static_cast<std::size_t>(kFreed), 1);
    kept.assign(static_cast<std::size_t>(kKept), 1);
    return model.forward(batch);
  };
  const Metrics metrics = Trainer(new_model(), args, parts).train().metrics;
  CHECK(metrics.at("train_mem_cpu_alloc_delta") >= 0.9 * kKept);
  CHECK(metrics.at("train_mem_cpu_peaked_delta") >= 0.9 * kFreed);
}

TEST_CASE("arguments: lbfgs evaluates the loss of a step several times") {
  const Folder folder;
  TrainingArguments args = six_steps(folder);
  args.optim = OptimizerName::lbfgs;
  args.optim_args = {{"max_iter", 5}, {"line_search_fn", "strong_wolfe"}};
  args.learning_rate = 1;
  args.lr_scheduler_type = SchedulerType::constant;
  args.per_device_train_batch_size = 24;
  args.logging_steps = 1;
  TrainerParts parts = quiet_parts();
  int calls = 0;
  parts.compute_loss = [&](PreTrainedModel& model, const TensorDict& batch) {
    ++calls;
    return model.forward(batch);
  };
  const auto model = new_model(0);
  Trainer trainer(model, args, parts);
  trainer.train();
  CHECK(calls > 6);
  std::vector<double> losses;
  for (const LogEntry& entry : trainer.state().log_history) {
    if (entry.count("loss")) losses.push_back(entry.at("loss"));
  }
  REQUIRE(losses.size() == 6);
  CHECK(losses.back() < 0.9 * losses.front());

  // The same steps with LibTorch alone. Each batch has all rows.
  const auto plain = new_model(0);
  const TensorDict all = rows(24).columns();
  plain->train();
  torch::optim::LBFGS own(
      plain->parameters(),
      torch::optim::LBFGSOptions(1).max_iter(5).max_eval(6).line_search_fn("strong_wolfe"));
  for (int step = 0; step < 6; ++step) {
    const at::Tensor loss = own.step([&] {
      own.zero_grad();
      const at::Tensor value = plain->forward(all).loss;
      value.backward();
      return value;
    });
    CAPTURE(step);
    // The Trainer's rows have another order, so the sums round differently.
    if (step < 3) CHECK(loss.item<double>() == doctest::Approx(losses[step]).epsilon(1e-3));
  }
}

}  // namespace trainer_more_arguments_test
