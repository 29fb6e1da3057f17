// The tests of test_trainer_checkpointing.py in transformers' tests/trainer that have a regression
// model, assert by assert. The comments name the tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/weights.h"
#include "ported/regression_trainer.h"
#include "unit/code_of.h"

namespace ported_trainer_checkpoints_test {

using namespace hasten;
using namespace hasten::ported;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<std::int64_t>;

Steps saved_steps(const Folder& folder) {
  Steps steps;
  for (const fs::path& each : checkpoints(folder.path)) steps.push_back(step_of_checkpoint(each));
  return steps;
}

void check_saved_checkpoints(const Folder& folder, std::int64_t every, std::int64_t total) {
  for (std::int64_t step = every; step < total; step += every) {
    const fs::path checkpoint = folder.path / str("checkpoint-", step);
    for (const char* file : {"model.safetensors", "training_args.json", "optimizer.safetensors",
                             "training_position.json", "trainer_state.json"}) {
      CAPTURE(file);
      CHECK(fs::is_regular_file(checkpoint / file));
    }
  }
}

void check_weights(const RegressionModel& net, const fs::path& checkpoint) {
  const TensorDict saved = load_weights(checkpoint);
  CHECK(at::equal(saved.at("a"), net.a));
  CHECK(at::equal(saved.at("b"), net.b));
}

// Returns the state of a run without the values that differ between runs: times, and the mean loss
// since the run was resumed.
nlohmann::json comparable_state(const Trainer& trainer) {
  nlohmann::json state = nlohmann::json::parse(trainer.state().to_json());
  for (nlohmann::json& entry : state.at("log_history")) {
    for (const char* key :
         {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss"})
      entry.erase(key);
  }
  return state;
}

}  // namespace

TEST_CASE("checkpoints: a run saves every so many steps") {
  // test_save_checkpoints, test_safe_checkpoints
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.save_steps = 5;
  Trainer(line(), args, parts_of()).train();
  check_saved_checkpoints(folder, 5, 24);
  CHECK(saved_steps(folder) == Steps{5, 10, 15, 20, 24});
}

TEST_CASE("checkpoints: a resumed run ends with the weights and the state of the first one") {
  // test_can_resume_training, test_resume_training_with_gradient_accumulation,
  // test_resume_training_with_frozen_params
  for (const bool accumulates : {false, true}) {
    for (const bool frozen : {false, true}) {
      const Folder folder;
      TrainingArguments args = arguments_of(folder);
      args.save_steps = args.logging_steps = 5;
      args.learning_rate = 0.1;
      if (accumulates) {
        args.per_device_train_batch_size = 4;
        args.gradient_accumulation_steps = 2;
      }
      const auto run = [&] {
        const auto net = line();
        net->a.requires_grad_(!frozen);
        Trainer trainer(net, args, parts_of(128));
        trainer.train();
        CHECK(net->a.requires_grad() == !frozen);
        return std::pair(net, comparable_state(trainer));
      };
      const auto [net, state] = run();
      CHECK((net->a.item<double>() == 0) == frozen);
      for (const int step : {5, 15}) {  // within the first epoch and at its end
        CAPTURE(step);
        args.resume_from_checkpoint = (folder.path / str("checkpoint-", step)).string();
        const auto [resumed, resumed_state] = run();
        CHECK(at::equal(resumed->a, net->a));
        CHECK(at::equal(resumed->b, net->b));
        CHECK(resumed_state == state);
      }
    }
  }
}

TEST_CASE("checkpoints: a checkpoint that does not exist is an error") {
  // The failures of test_can_resume_training
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.resume_from_checkpoint = (folder.path / "checkpoint-5-bogus").string();
  CHECK(code_of([&] { Trainer(line(), args, parts_of()).train(); }) == "trainer.no-training-state");
  args.resume_from_checkpoint = "true";
  CHECK(code_of([&] { Trainer(line(), args, parts_of()).train(); }) == "trainer.no-checkpoint");
}

TEST_CASE("checkpoints: a resumed run draws the random numbers of the first one") {
  // test_resume_training_with_randomness
  const auto noisy = [](RegressionModel& net, const TensorDict& batch) {
    return mse(net.forward(batch.at("input_x")) + 0.05 * torch::randn({}), batch.at("labels"));
  };
  for (const bool every_epoch : {false, true}) {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.learning_rate = 0.1;
    args.save_steps = 5;
    if (every_epoch) args.save_strategy = SaveStrategy::epoch;
    const auto run = [&] {
      const auto net = line(0, 2);
      TrainerParts parts = parts_of(128);
      parts.compute_loss = noisy;
      Trainer(net, args, parts).train();
      return net;
    };
    const auto net = run();
    const Steps saved = saved_steps(folder);
    if (every_epoch) CHECK(saved == Steps{16, 32, 48});
    args.resume_from_checkpoint =
        (folder.path / str("checkpoint-", every_epoch ? saved.front() : 15)).string();
    const auto resumed = run();
    CHECK(at::equal(resumed->a, net->a));
    CHECK(at::equal(resumed->b, net->b));
  }
}

TEST_CASE("checkpoints: a run that was interrupted continues in another folder") {
  // test_resume_from_interrupted_training
  const Folder first, second;
  TrainingArguments args = arguments_of(first);
  args.num_train_epochs = 1;
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 3;
  args.save_steps = 1;
  args.max_steps = 2;
  Trainer(line(), args, parts_of(100)).train();
  REQUIRE(fs::exists(first.path / "checkpoint-2"));
  args.output_dir = second.path.string();
  args.max_steps = -1;
  args.resume_from_checkpoint = (first.path / "checkpoint-2").string();
  Trainer resumed(line(), args, parts_of(100));
  resumed.train();
  CHECK(resumed.state().global_step == 17);
  CHECK(fs::exists(second.path / "checkpoint-17/model.safetensors"));
}

TEST_CASE("checkpoints: a resumed run reads the rows that were left, in their order") {
  // test_resume_batch_order
  const Folder folder, other;
  TrainingArguments args = arguments_of(folder);
  args.learning_rate = 0.1;
  args.per_device_train_batch_size = 2;
  args.optim = OptimizerName::sgd;
  args.save_steps = 1;
  const ColumnDataset rows(
      {{"input_x", torch::arange(10).to(at::kFloat)}, {"labels", torch::zeros({10})}});
  const auto order = [&] {
    std::vector<float> seen;
    TrainerParts parts{.train_dataset = TrainerDataset(rows),
                       .compute_loss =
                           [&seen](RegressionModel& net, const TensorDict& batch) {
                             const at::Tensor x = batch.at("input_x").contiguous();
                             seen.insert(seen.end(), x.data_ptr<float>(),
                                         x.data_ptr<float>() + x.numel());
                             return mse(net.forward(x) * 1e-3, batch.at("labels"));
                           },
                       .log_sink = [](std::string_view) {}};
    Trainer(line(), args, parts).train();
    return seen;
  };
  const std::vector<float> whole = order();
  REQUIRE(whole.size() == 30);
  args.output_dir = other.path.string();
  args.resume_from_checkpoint = (folder.path / "checkpoint-6").string();
  CHECK(order() == std::vector<float>(whole.begin() + 12, whole.end()));
}

TEST_CASE("checkpoints: rotation keeps the newest ones and the best one") {
  // test_checkpoint_rotation, test_checkpoint_sorting
  const auto left = [](std::int64_t limit, const std::string& best) {
    const Folder folder;
    for (const int step : {20, 5, 15, 25, 10}) {
      const fs::path checkpoint = folder.path / str("checkpoint-", step);
      fs::create_directories(checkpoint);
      write_manifest(checkpoint);
    }
    CHECK(saved_steps(folder) == Steps{5, 10, 15, 20, 25});
    rotate_checkpoints(folder.path,
                       {.limit = limit, .keep = best.empty() ? fs::path() : folder.path / best});
    return saved_steps(folder);
  };
  CHECK(left(2, "") == Steps{20, 25});
  CHECK(left(2, "checkpoint-5") == Steps{5, 25});
  CHECK(left(1, "checkpoint-25") == Steps{25});
  CHECK(left(1, "checkpoint-5") == Steps{5, 25});
}

TEST_CASE("best model: the last step is saved, and the best checkpoint is loaded at the end") {
  // test_load_best_model_with_save, test_load_best_model_with_save_best
  {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.save_steps = 5;
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 5;
    args.max_steps = 9;
    Trainer(line(), args, parts_of()).train();
    CHECK(saved_steps(folder) == Steps{5, 9});
  }
  for (const SaveStrategy strategy : {SaveStrategy::steps, SaveStrategy::best}) {
    CAPTURE(name_of(strategy));
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.save_strategy = strategy;
    args.save_steps = 5;
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 5;
    args.load_best_model_at_end = true;
    args.save_total_limit = 2;
    args.max_steps = 11;
    const auto net = line();
    Trainer trainer(net, args, parts_of());
    trainer.train();
    CHECK(saved_steps(folder) == Steps{10, 11});
    REQUIRE_FALSE(trainer.state().best_model_checkpoint.empty());
    check_weights(*net, trainer.state().best_model_checkpoint);
  }
}

TEST_CASE("best model: the model of the best evaluation is loaded at the end") {
  // test_load_best_model_at_end, test_load_best_model_from_safetensors
  struct Case {
    IntervalStrategy strategy;
    std::string metric;
    std::int64_t every;
  };
  for (const Case& each :
       {Case{IntervalStrategy::steps, "", 5}, Case{IntervalStrategy::steps, "accuracy", 5},
        Case{IntervalStrategy::epoch, "accuracy", 8}}) {
    CAPTURE(each.metric);
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.learning_rate = 0.1;
    args.eval_strategy = each.strategy;
    args.save_strategy =
        each.strategy == IntervalStrategy::steps ? SaveStrategy::steps : SaveStrategy::epoch;
    args.eval_steps = args.save_steps = 5;
    args.load_best_model_at_end = true;
    args.metric_for_best_model = each.metric;
    const bool greater = !each.metric.empty();
    const auto net = line(1.5, 2.5);
    TrainerParts parts = parts_of();
    if (greater) parts.compute_metrics = almost_accuracy_metric();
    Trainer trainer(net, args, parts);
    CHECK(trainer.args().greater_is_better == greater);
    trainer.train();
    check_saved_checkpoints(folder, each.every, 24);
    const std::string key = greater ? "eval_accuracy" : "eval_loss";
    const std::vector<double> values = logged(trainer, key);
    const double best = greater ? *std::max_element(values.begin(), values.end())
                                : *std::min_element(values.begin(), values.end());
    const auto number = std::find(values.begin(), values.end(), best) - values.begin() + 1;
    const std::int64_t step = std::min<std::int64_t>(number * each.every, 24);
    CHECK(trainer.state().best_global_step == step);
    check_weights(*net, folder.path / str("checkpoint-", step));
    CHECK(trainer.evaluate().at(key) == best);
  }
}

namespace {

// The loss of the n-th evaluation is the n-th value.
struct ScriptedLoss : Trainer {
  ScriptedLoss(TrainingArguments args, TrainerParts parts, std::vector<double> values)
      : Trainer(line(1.5, 2.5), std::move(args), std::move(parts)), values(std::move(values)) {}
  ModelOutput prediction_step(AnyBatch& batch) override {
    ModelOutput out = Trainer::prediction_step(batch);
    const auto evaluations = logged(*this, "eval_loss").size();
    out.loss = torch::full({}, values.at(evaluations), at::kDouble);
    return out;
  }
  std::vector<double> values;
};

}  // namespace

TEST_CASE("best model: with save_strategy best only an improvement is saved") {
  // test_save_best_checkpoint
  const auto best_arguments = [](const Folder& folder, const char* metric) {
    TrainingArguments args = arguments_of(folder);
    args.learning_rate = 0.1;
    args.eval_strategy = IntervalStrategy::epoch;
    args.save_strategy = SaveStrategy::best;
    args.metric_for_best_model = metric;
    return args;
  };
  const Folder by_accuracy, by_loss;
  TrainerParts parts = parts_of();
  parts.compute_metrics = scripted_accuracy({0.60, 0.65, 0.64});
  Trainer(line(1.5, 2.5), best_arguments(by_accuracy, "accuracy"), parts).train();
  CHECK(saved_steps(by_accuracy) == Steps{8, 16});
  ScriptedLoss trainer(best_arguments(by_loss, "loss"), parts_of(), {0.03, 0.02, 0.03});
  trainer.train();
  CHECK(saved_steps(by_loss) == Steps{8, 16});
}

namespace {

// A run that saves every step and never loads the best model.
struct ScriptedRun {
  explicit ScriptedRun(TrainingArguments changes, std::vector<double> accuracies = {}) {
    changes.output_dir = folder.path.string();
    changes.use_cpu = true;
    changes.metric_for_best_model = "accuracy";
    changes.greater_is_better = true;
    TrainerParts parts = parts_of();
    if (!accuracies.empty()) parts.compute_metrics = scripted_accuracy(std::move(accuracies));
    Trainer trainer(line(), changes, parts);
    trainer.train();
    state = trainer.state();
  }
  fs::path checkpoint(std::int64_t step) const { return folder.path / str("checkpoint-", step); }
  Folder folder;
  TrainerState state;
};

}  // namespace

TEST_CASE("best model: best_metric, best_global_step and best_model_checkpoint") {
  // test_best_model_checkpoint_behavior
  const std::vector<double> falling = {0.59, 0.57, 0.55};
  {
    const ScriptedRun never({.save_steps = 1});
    CHECK_FALSE(never.state.best_metric);
    CHECK(never.state.best_model_checkpoint.empty());
    CHECK(saved_steps(never.folder).size() == 24);
  }
  {
    const ScriptedRun limited({.save_steps = 1, .save_total_limit = 1});
    CHECK_FALSE(limited.state.best_metric);
    CHECK(limited.state.best_model_checkpoint.empty());
    CHECK(saved_steps(limited.folder) == Steps{24});
  }
  for (const SaveStrategy strategy : {SaveStrategy::epoch, SaveStrategy::steps}) {
    const ScriptedRun run(
        {.eval_strategy = IntervalStrategy::epoch, .save_strategy = strategy, .save_steps = 1},
        falling);
    CHECK(run.state.best_metric == 0.59);
    CHECK(run.state.best_global_step == 8);
    CHECK(run.state.best_model_checkpoint == run.checkpoint(8).string());
    CHECK(saved_steps(run.folder).size() == (strategy == SaveStrategy::epoch ? 3 : 24));
  }
  {
    // The Hugging Face Trainer keeps only the best checkpoint; hasten never deletes the newest one
    // (docs/design/004).
    const ScriptedRun first({.eval_strategy = IntervalStrategy::steps,
                             .eval_steps = 1,
                             .save_steps = 1,
                             .save_total_limit = 1},
                            {0.90, 0.80, 0.70});
    CHECK(first.state.best_metric == 0.90);
    CHECK(first.state.best_global_step == 1);
    CHECK(first.state.best_model_checkpoint == first.checkpoint(1).string());
    CHECK(saved_steps(first.folder) == Steps{1, 24});
  }
  {
    const ScriptedRun apart(
        {.eval_strategy = IntervalStrategy::steps, .eval_steps = 3, .save_steps = 2},
        {0.90, 0.80, 0.70});
    CHECK(apart.state.best_metric == 0.90);
    CHECK(apart.state.best_global_step == 3);
    CHECK(apart.state.best_model_checkpoint.empty());
    CHECK(saved_steps(apart.folder).size() == 12);
  }
}

}  // namespace ported_trainer_checkpoints_test
