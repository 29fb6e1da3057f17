// The tests of test_trainer_callback.py in transformers' tests/trainer, assert by assert, except
// the tests of Python's classes. The comments name the tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "hasten/checkpoint/checkpoint_folders.h"
#include "ported/regression_trainer.h"
#include "unit/code_of.h"

namespace ported_trainer_callbacks_test {

using namespace hasten;
using namespace hasten::ported;

namespace {

using Events = std::vector<std::string>;

struct Recorder : TrainerCallback {
  void on_train_begin(const TrainerEvent&, TrainerControl&) override { add("on_train_begin"); }
  void on_train_end(const TrainerEvent&, TrainerControl&) override { add("on_train_end"); }
  void on_epoch_begin(const TrainerEvent&, TrainerControl&) override { add("on_epoch_begin"); }
  void on_epoch_end(const TrainerEvent&, TrainerControl&) override { add("on_epoch_end"); }
  void on_step_begin(const TrainerEvent&, TrainerControl&) override { add("on_step_begin"); }
  void on_pre_optimizer_step(const TrainerEvent&, TrainerControl&) override {
    add("on_pre_optimizer_step");
  }
  void on_optimizer_step(const TrainerEvent&, TrainerControl&) override {
    add("on_optimizer_step");
  }
  void on_substep_end(const TrainerEvent&, TrainerControl&) override { add("on_substep_end"); }
  void on_step_end(const TrainerEvent&, TrainerControl&, double) override { add("on_step_end"); }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override {
    add("on_evaluate");
  }
  void on_predict(const TrainerEvent&, TrainerControl&, const Metrics&) override {
    add("on_predict");
  }
  void on_save(const TrainerEvent&, TrainerControl&) override { add("on_save"); }
  void on_log(const TrainerEvent&, TrainerControl&, const Metrics&) override { add("on_log"); }
  void on_prediction_step(const TrainerEvent&, TrainerControl&) override {
    add("on_prediction_step");
  }
  void add(const char* event) { events.push_back(event); }
  Events events;
};

// Returns what _get_expected_events returns, without on_init_end, which hasten does not have.
Events expected_events(const TrainingArguments& args) {
  constexpr std::int64_t kEpochs = 3, kBatches = 8;
  Events events = {"on_train_begin"};
  const auto add = [&](std::initializer_list<const char*> more) {
    events.insert(events.end(), more.begin(), more.end());
  };
  const auto evaluate = [&] {
    for (std::int64_t batch = 0; batch < kBatches; ++batch) add({"on_prediction_step"});
    add({"on_log", "on_evaluate"});
  };
  const auto is_due = [](std::int64_t step, double every) {
    return std::fmod(static_cast<double>(step), every) == 0;
  };
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    add({"on_epoch_begin"});
    for (std::int64_t batch = 0; batch < kBatches; ++batch) {
      ++step;
      add({"on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"});
      const bool is_last = step == kEpochs * kBatches;
      if (is_due(step, args.logging_steps)) add({"on_log"});
      if (args.eval_strategy == IntervalStrategy::steps &&
          (is_due(step, *args.eval_steps) || is_last))
        evaluate();
      if (is_due(step, args.save_steps) || is_last) add({"on_save"});
    }
    add({"on_epoch_end"});
    if (args.eval_strategy == IntervalStrategy::epoch) evaluate();
  }
  add({"on_log", "on_train_end"});
  return events;
}

}  // namespace

TEST_CASE("callbacks: the events of a run come in the order of the Hugging Face Trainer") {
  // test_event_flow
  const IntervalStrategy steps = IntervalStrategy::steps, epoch = IntervalStrategy::epoch;
  const std::vector<TrainingArguments> runs = {
      {},
      {.logging_steps = 5},
      {.save_steps = 5},
      {.eval_strategy = steps, .eval_steps = 5},
      {.eval_strategy = epoch},
      {.logging_steps = 3, .eval_strategy = steps, .eval_steps = 5, .save_steps = 10}};
  for (TrainingArguments args : runs) {
    CAPTURE(to_json(args));
    const Folder folder;
    args.output_dir = folder.path.string();
    args.use_cpu = true;
    args.async_save = false;  // on_save is called when the checkpoint is complete
    const auto recorder = std::make_shared<Recorder>();
    TrainerParts parts = parts_of();
    parts.callbacks = {recorder};
    Trainer trainer(line(), args, parts);
    trainer.train();
    CHECK(recorder->events == expected_events(args));
  }
}

TEST_CASE("callbacks: an epoch is saved once") {
  // test_no_duplicate_save_on_epoch_strategy
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.max_steps = 2;
  args.save_strategy = SaveStrategy::epoch;
  const auto recorder = std::make_shared<Recorder>();
  Trainer trainer(line(), args, parts_of());
  trainer.add_callback(recorder);
  trainer.train();
  CHECK(std::count(recorder->events.begin(), recorder->events.end(), "on_save") == 1);
  CHECK(checkpoints(folder.path).size() == 1);
}

namespace {

struct StopOnceCallback : TrainerCallback {
  void on_step_end(const TrainerEvent&, TrainerControl& control, double) override {
    ++steps;
    if (!std::exchange(has_stopped, true)) control.should_training_stop = true;
  }
  int steps = 0;
  bool has_stopped = false;
};

}  // namespace

TEST_CASE("callbacks: a callback may stop a run, and the next run ignores that request") {
  // test_callback_can_stop_training, test_callback_receives_control_flags, TrainerControlTest
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.max_steps = 10;
  args.logging_steps = 1;
  args.save_strategy = SaveStrategy::no;
  const auto stop = std::make_shared<StopOnceCallback>();
  TrainerParts parts = parts_of();
  parts.callbacks = {stop};
  Trainer trainer(line(), args, parts);
  CHECK(trainer.train().global_step == 1);
  CHECK(stop->steps == 1);
  CHECK(trainer.train().global_step == 10);
  CHECK(stop->steps == 11);
  const TrainerControl control;
  CHECK_FALSE(control.should_training_stop);
  CHECK_FALSE(control.should_epoch_stop);
  CHECK_FALSE(control.should_save);
  CHECK_FALSE(control.should_evaluate);
  CHECK_FALSE(control.should_log);
}

namespace {

// Keeps a number that comes from the program or from the checkpoint.
struct StatefulCallback : TrainerCallback {
  explicit StatefulCallback(double value) : value(value) {}
  std::string name() const override { return "StatefulCallback"; }
  std::map<std::string, double> attributes() const override { return {{"my_value", value}}; }
  void restore(const std::map<std::string, double>& attributes) override {
    value = attributes.at("my_value");
  }
  double value;
};

TrainingArguments four_steps(const Folder& folder) {
  TrainingArguments args = arguments_of(folder);
  args.learning_rate = 0;  // no evaluation improves the first one
  args.eval_strategy = IntervalStrategy::steps;
  args.save_steps = 2;
  args.eval_steps = 1;
  args.max_steps = 4;
  args.metric_for_best_model = "loss";
  return args;
}

}  // namespace

TEST_CASE("callbacks: a checkpoint keeps the attributes of each callback, also of equal names") {
  // test_early_stopping_state_persists, test_mixed_stateful_and_regular_callbacks,
  // test_multiple_instances_of_same_stateful_callback. A checkpoint does not keep the arguments of
  // a callback's constructor, such as the patience; the program passes them again.
  const Folder folder;
  TrainingArguments args = four_steps(folder);
  const auto run = [&](double first_value, double second_value) {
    const auto early = std::make_shared<EarlyStoppingCallback>(9, 0.2);
    const auto first = std::make_shared<StatefulCallback>(first_value),
               second = std::make_shared<StatefulCallback>(second_value);
    TrainerParts parts = parts_of();
    parts.callbacks = {std::make_shared<Recorder>(), early, first, second};
    Trainer(line(), args, parts).train();
    return std::vector<double>{early->attributes().at("early_stopping_patience_counter"),
                               first->value, second->value};
  };
  CHECK(run(1, 2) == std::vector<double>{3, 1, 2});
  args.resume_from_checkpoint = (folder.path / "checkpoint-2").string();
  CHECK(run(7, 8) == std::vector<double>{3, 1, 2});
}

TEST_CASE("callbacks: a state in the checkpoint without its callback is reported") {
  // test_missing_stateful_callback_warning
  const Folder folder;
  TrainingArguments args = four_steps(folder);
  TrainerParts parts = parts_of();
  parts.callbacks = {std::make_shared<EarlyStoppingCallback>(9)};
  Trainer(line(), args, parts).train();
  args.resume_from_checkpoint = (folder.path / "checkpoint-2").string();
  std::string log;
  parts.callbacks.clear();
  parts.log_sink = [&](std::string_view text) { log += text; };
  Trainer(line(), args, parts).train();
  CHECK_MESSAGE(log.find("EarlyStoppingCallback") != std::string::npos, log);
}

TEST_CASE("early stopping: a run ends before its last epoch, and needs evaluations") {
  // test_early_stopping_callback
  for (const bool loads_best : {true, false}) {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.num_train_epochs = 20;
    args.per_device_train_batch_size = 16;
    args.load_best_model_at_end = loads_best;
    args.eval_strategy = IntervalStrategy::epoch;
    args.save_strategy = SaveStrategy::epoch;
    args.metric_for_best_model = "accuracy";
    TrainerParts parts = parts_of();
    parts.compute_metrics = almost_accuracy_metric();
    Trainer trainer(line(), args, parts);
    trainer.add_callback(std::make_shared<EarlyStoppingCallback>(1, 0.0001));
    CHECK(trainer.train().global_step < 20 * 64 / 16);
    CHECK_FALSE(trainer.state().best_model_checkpoint.empty());
  }
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.metric_for_best_model = "accuracy";
  Trainer trainer(line(), args, parts_of());
  trainer.add_callback(std::make_shared<EarlyStoppingCallback>(1));
  CHECK(code_of([&] { trainer.train(); }) == "trainer.early-stopping");
  CHECK(trainer.state().global_step == 0);
}

TEST_CASE("early stopping: the counter counts evaluations without a real improvement") {
  // test_patience_counter_increments_when_metric_does_not_improve,
  // test_patience_counter_resets_when_metric_improves, test_threshold_prevents_small_improvements,
  // test_state_includes_all_attributes
  const auto counter = [](double threshold, double before, double best, double now) {
    EarlyStoppingCallback callback(3, threshold);
    callback.restore({{"early_stopping_patience_counter", before}});
    const TrainingArguments args{.metric_for_best_model = "accuracy", .greater_is_better = true};
    TrainerState state;
    state.best_metric = best;
    RegressionModel net;
    TrainerControl control;
    callback.on_evaluate({.args = args, .state = state, .model = net}, control,
                         {{"eval_accuracy", now}});
    return callback.attributes().at("early_stopping_patience_counter");
  };
  CHECK(counter(0, 0, 0.9, 0.8) == 1);
  CHECK(counter(0, 2, 0.8, 0.95) == 0);
  CHECK(counter(0.1, 0, 0.8, 0.85) == 1);
}

TEST_CASE("trainer state: it is read back from its file, and begins without a history") {
  // test_save_and_load_json, test_log_history_initialized, test_stateful_callbacks_initialized
  const TrainerState empty;
  CHECK(empty.log_history.empty());
  CHECK(empty.callbacks.empty());
  TrainerState state;
  state.epoch = 1.5;
  state.global_step = 100;
  state.max_steps = 200;
  state.best_metric = 0.95;
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "state.json", state.to_json());
  const TrainerState loaded = TrainerState::from_file(folder.path() / "state.json");
  CHECK(loaded.epoch == 1.5);
  CHECK(loaded.global_step == 100);
  CHECK(loaded.max_steps == 200);
  CHECK(loaded.best_metric == 0.95);
}

}  // namespace ported_trainer_callbacks_test
