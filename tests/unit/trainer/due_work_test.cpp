// Resumed runs make up for the work that follows the step of their checkpoint: an evaluation that a
// signal has prevented, and the work at the end of an epoch.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/launch/worker.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/stop_on_signal.h"
#include "hasten/trainer/trainer.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/resumed_runs.h"
#include "unit/trainer/tiny.h"

namespace trainer_due_work_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;
using hasten::multiprocess_checks::require;
using hasten::resumed_runs::resumed_at;

namespace {

using Steps = std::vector<std::int64_t>;

// Records the steps at which its functions are called.
struct Recorder : TrainerCallback {
  void on_epoch_end(const TrainerEvent& event, TrainerControl&) override {
    epoch_ends.push_back(event.state.global_step);
  }
  void on_evaluate(const TrainerEvent& event, TrainerControl&, const Metrics&) override {
    evaluations.push_back(event.state.global_step);
  }
  void on_save(const TrainerEvent& event, TrainerControl&) override {
    saves.push_back(event.state.global_step);
  }
  Steps epoch_ends, evaluations, saves;
};

enum class Moment { step, evaluation };

// Raises SIGTERM in a step, or at the beginning of the evaluation after it.
struct Raiser : TrainerCallback {
  Raiser(Moment moment, std::int64_t step) : moment(moment), step(step) {}
  void on_step_begin(const TrainerEvent& event, TrainerControl&) override {
    if (moment == Moment::step && event.state.global_step == step - 1) std::raise(SIGTERM);
  }
  void on_evaluate_begin(const TrainerEvent& event, std::int64_t) override {
    if (moment == Moment::evaluation && event.state.global_step == step) std::raise(SIGTERM);
  }
  Moment moment;
  std::int64_t step;
};

// Ends the epoch after a step.
struct EpochStopper : TrainerCallback {
  explicit EpochStopper(std::int64_t step) : step(step) {}
  void on_step_end(const TrainerEvent& event, TrainerControl& control, double) override {
    if (event.state.global_step == step) control.should_epoch_stop = true;
  }
  std::int64_t step;
};

struct EndOfRun {
  TrainOutput out;
  std::string logs;  // without times
  TensorDict weights;
  std::string best;
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
};

std::string logs_of(const Trainer& trainer) {
  std::string logs;
  for (LogEntry entry : trainer.state().log_history) {
    std::erase_if(entry, [](const auto& metric) {
      return contains(metric.first, "_runtime") || contains(metric.first, "_per_second") ||
             contains(metric.first, "_mem_");
    });
    logs += metrics_json(entry) + '\n';
  }
  return logs;
}

EndOfRun run_of_rows(std::int64_t count, const TrainingArguments& args,
                     std::vector<std::shared_ptr<TrainerCallback>> callbacks = {}) {
  EndOfRun run;
  const auto model = new_model();
  callbacks.push_back(run.recorder);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(count)),
                   .eval_dataset = TrainerDataset(rows(10)),
                   .callbacks = callbacks,
                   .log_sink = [](std::string_view) {}});
  run.out = trainer.train();
  run.logs = logs_of(trainer);
  run.best = trainer.state().best_model_checkpoint;
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  return run;
}

EndOfRun run_to_signal(std::int64_t count, const TrainingArguments& args, Moment moment,
                       std::int64_t step) {
  return run_of_rows(count, args,
                     {std::make_shared<Raiser>(moment, step), std::make_shared<StopOnSignal>()});
}

void check_same(const EndOfRun& straight, const EndOfRun& resumed) {
  CHECK(resumed.logs == straight.logs);
  CHECK(resumed.out.global_step == straight.out.global_step);
  for (const auto& [name, tensor] : straight.weights) {
    CAPTURE(name);
    CHECK(at::equal(tensor, resumed.weights.at(name)));
  }
}

// No change of the loss counts as an improvement, so the second evaluation halves the rate.
TrainingArguments with_plateau(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.learning_rate = 1e-3;
  args.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau;
  args.lr_scheduler_kwargs = {
      {"factor", 0.5}, {"patience", 0}, {"threshold", 10}, {"threshold_mode", "abs"}};
  args.async_save = false;
  return args;
}

// Evaluates after the steps 5, 10, 15 and 20.
TrainingArguments with_step_evaluations(const fs::path& folder) {
  TrainingArguments args = with_plateau(folder);
  args.max_steps = 20;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 5;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  return args;
}

// Three epochs of five steps with 20 rows. A log and an evaluation follow each of them.
TrainingArguments with_epoch_evaluations(const fs::path& folder) {
  TrainingArguments args = with_plateau(folder);
  args.num_train_epochs = 3;
  args.logging_strategy = IntervalStrategy::epoch;
  args.eval_strategy = IntervalStrategy::epoch;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  return args;
}

}  // namespace

TEST_CASE("due work: an evaluation that a signal skips or stops is made up") {
  for (const std::int64_t count : {28, 20}) {  // step 5 is in the first epoch, or ends it
    const Folder none;
    const EndOfRun straight = run_of_rows(count, with_step_evaluations(none.path));
    REQUIRE(straight.recorder->evaluations == Steps{5, 10, 15, 20});
    for (const Moment moment : {Moment::step, Moment::evaluation}) {
      for (const bool just_in_time : {false, true}) {
        CAPTURE(count);
        CAPTURE(static_cast<int>(moment));
        CAPTURE(just_in_time);
        const Folder folder;
        TrainingArguments args = with_step_evaluations(folder.path);
        args.enable_jit_checkpoint = just_in_time;
        if (just_in_time) args.save_steps = 10;
        const EndOfRun stopped = run_to_signal(count, args, moment, 5);
        REQUIRE(stopped.out.stop_signal == SIGTERM);
        REQUIRE(stopped.out.global_step == 5);
        CHECK(stopped.recorder->evaluations.empty());
        args.resume_from_checkpoint = "true";
        const EndOfRun resumed = run_of_rows(count, args);
        check_same(straight, resumed);
        CHECK(resumed.recorder->evaluations == Steps{5, 10, 15, 20});
        // The checkpoint from which the run resumes stays.
        CHECK(resumed.recorder->saves == (just_in_time ? Steps{10, 20} : Steps{10, 15, 20}));
      }
    }
  }
}

TEST_CASE("due work: a second signal leaves the evaluation to the next run") {
  const Folder none, folder;
  const EndOfRun straight = run_of_rows(28, with_step_evaluations(none.path));
  TrainingArguments args = with_step_evaluations(folder.path);
  run_to_signal(28, args, Moment::step, 5);
  args.resume_from_checkpoint = "true";
  const EndOfRun again = run_to_signal(28, args, Moment::evaluation, 5);
  CHECK(again.out.steps == 0);
  CHECK(again.recorder->saves.empty());
  check_same(straight, run_of_rows(28, args));
}

TEST_CASE("due work: the best model is the checkpoint that the run resumes from") {
  const Folder folder, elsewhere;
  TrainingArguments args = with_step_evaluations(folder.path);
  args.learning_rate = 0;  // no score is better than the first one, at step 5
  args.save_strategy = SaveStrategy::best;
  args.load_best_model_at_end = true;
  args.enable_jit_checkpoint = true;
  run_to_signal(28, args, Moment::evaluation, 5);
  REQUIRE(fs::exists(folder.path / "checkpoint-5"));
  TrainingArguments moved = resumed_at(args, 5);
  moved.output_dir = elsewhere.path.string();
  const EndOfRun in_place = run_of_rows(28, resumed_at(args, 5));
  CHECK(in_place.best == (folder.path / "checkpoint-5").string());
  CHECK(in_place.recorder->saves.empty());
  // Another folder has no checkpoint of this step yet.
  const EndOfRun other = run_of_rows(28, moved);
  CHECK(other.best == (elsewhere.path / "checkpoint-5").string());
  CHECK(other.recorder->saves == Steps{5});
  CHECK_FALSE(load_training_position(elsewhere.path / "checkpoint-5").due);
  CHECK(other.logs == in_place.logs);
}

TEST_CASE("due work: the end of an epoch follows the checkpoint of its last step") {
  const Folder folder;
  const TrainingArguments args = with_epoch_evaluations(folder.path);
  const EndOfRun straight = run_of_rows(20, args);
  REQUIRE(straight.recorder->evaluations == Steps{5, 10, 15});
  // The last checkpoint comes first, because a resumed run renames those of later steps.
  for (const std::int64_t step : {15, 10, 5}) {
    CAPTURE(step);
    const EndOfRun resumed = run_of_rows(20, resumed_at(args, step));
    check_same(straight, resumed);
    Steps rest;
    for (std::int64_t each = step; each <= 15; each += 5) rest.push_back(each);
    CHECK(resumed.recorder->evaluations == rest);
    CHECK(resumed.recorder->epoch_ends == rest);
    CHECK(resumed.out.steps == 15 - step);
  }
}

TEST_CASE("due work: the end of a run inside an epoch is due unless the run has more steps now") {
  const Folder none, folder;
  TrainingArguments args = with_epoch_evaluations(folder.path);
  args.max_steps = args.save_steps = 7;
  const EndOfRun short_one = run_of_rows(20, args);
  REQUIRE(short_one.recorder->evaluations == Steps{5, 7});
  check_same(short_one, run_of_rows(20, resumed_at(args, 7)));

  args.max_steps = 12;
  const EndOfRun resumed = run_of_rows(20, resumed_at(args, 7));
  CHECK(resumed.recorder->evaluations == Steps{10, 12});
  args.output_dir = none.path.string();
  check_same(run_of_rows(20, args), resumed);
}

TEST_CASE("due work: an epoch that a callback has stopped stays stopped") {
  const Folder folder;
  TrainingArguments args = with_epoch_evaluations(folder.path);
  args.save_steps = 3;
  const auto stopper = std::make_shared<EpochStopper>(3);
  const EndOfRun straight = run_of_rows(20, args, {stopper});
  REQUIRE(straight.recorder->evaluations == Steps{3, 8, 13});
  const LoaderState position = load_training_position(folder.path / "checkpoint-3").loader;
  CHECK(position.epoch == 1);
  CHECK(position.batch == 0);
  check_same(straight, run_of_rows(20, resumed_at(args, 3), {stopper}));
}

TEST_CASE("due work: a signal in an epoch that is logged, evaluated and saved at its end") {
  const Folder none;
  TrainingArguments args = with_epoch_evaluations(none.path);
  args.save_strategy = SaveStrategy::epoch;
  const EndOfRun straight = run_of_rows(20, args);
  struct Case {
    Moment moment;
    std::int64_t step;
  };
  for (const Case& each : {Case{Moment::step, 3}, Case{Moment::step, 5}, Case{Moment::step, 15},
                           Case{Moment::evaluation, 5}, Case{Moment::evaluation, 15}}) {
    for (const bool just_in_time : {false, true}) {
      CAPTURE(static_cast<int>(each.moment));
      CAPTURE(each.step);
      CAPTURE(just_in_time);
      const Folder folder;
      args.output_dir = folder.path.string();
      args.enable_jit_checkpoint = just_in_time;
      args.resume_from_checkpoint.clear();
      const EndOfRun stopped = run_to_signal(20, args, each.moment, each.step);
      REQUIRE(stopped.out.global_step == each.step);
      CHECK(stopped.recorder->epoch_ends.back() == each.step);
      REQUIRE(last_checkpoint(folder.path).filename() == str("checkpoint-", each.step));
      args.resume_from_checkpoint = "true";
      check_same(straight, run_of_rows(20, args));
    }
  }
}

TEST_CASE("due work: in a checkpoint of an earlier version, nothing is due") {
  const Folder folder;
  const TrainingArguments args = with_epoch_evaluations(folder.path);
  run_of_rows(20, args);
  const fs::path checkpoint = folder.path / "checkpoint-5";
  nlohmann::json position = nlohmann::json::parse(read_file(checkpoint / "training_position.json"));
  REQUIRE(position.erase("due") == 1);
  write_file_atomically(checkpoint / "training_position.json", position.dump());
  write_manifest(checkpoint);
  CHECK(run_of_rows(20, resumed_at(args, 5)).recorder->evaluations == Steps{10, 15});
}

TEST_CASE("due work: several processes make up for the same work") {
  const Folder none, folder;
  notebook_launcher(
      [&] {
        const bool receives = ProcessState::of(this_worker()).process_index == 1;
        const auto require_same = [](const EndOfRun& straight, const EndOfRun& resumed) {
          require(straight.logs == resumed.logs, straight.logs + "differs from\n" + resumed.logs);
          for (const auto& [name, tensor] : straight.weights)
            require(at::equal(tensor, resumed.weights.at(name)), name + " differs");
        };
        // An epoch has four steps.
        TrainingArguments args = with_step_evaluations(none.path);
        const EndOfRun straight = run_of_rows(28, args);
        args.output_dir = folder.path.string();
        const EndOfRun stopped =
            run_to_signal(28, args, Moment::evaluation, receives ? 5 : /*never*/ 21);
        require(stopped.out.global_step == 5, str("stopped at step ", stopped.out.global_step));
        require(stopped.recorder->evaluations.empty(), "the evaluation was completed");
        args.resume_from_checkpoint = "true";
        require_same(straight, run_of_rows(28, args));

        TrainingArguments epochs = with_epoch_evaluations(none.path);
        epochs.overwrite_output_dir = true;
        epochs.save_steps = 4;
        const EndOfRun whole = run_of_rows(28, epochs);
        epochs.overwrite_output_dir = false;
        require_same(whole, run_of_rows(28, resumed_at(epochs, 4)));
      },
      {.num_processes = 2, .use_cpu = true});
}

}  // namespace trainer_due_work_test
