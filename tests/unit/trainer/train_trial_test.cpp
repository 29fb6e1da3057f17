// A search of hyper-parameters with the Trainer.
#include "hasten/trainer/train_trial.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/search/detail/trial_arguments.h"
#include "unit/code_of.h"
#include "unit/scoped_environment.h"
#include "unit/trainer/tiny.h"

namespace trainer_train_trial_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

TrainingArguments base_arguments(const Folder& folder) {
  return {.output_dir = folder.path.string(),
          .per_device_train_batch_size = 4,
          .max_steps = 6,
          .learning_rate = 1e-3,
          .lr_scheduler_type = SchedulerType::constant,
          .use_cpu = true,
          .eval_strategy = IntervalStrategy::steps,
          .eval_steps = 2,
          .save_strategy = SaveStrategy::no};
}

TrainerParts parts_of_trial() {
  return {.train_dataset = TrainerDataset(rows(24)),
          .eval_dataset = TrainerDataset(rows(8)),
          .log_sink = [](std::string_view) {}};
}

}  // namespace

TEST_CASE("search with the Trainer: trials report, are pruned, and the best one wins") {
  const Folder folder;
  std::vector<std::int64_t> steps;
  // A rate of 5 destroys the model, so this trial is worse than the median.
  const SearchResult result = search_hyperparameters(
      SearchSpace().choice("learning_rate", {1e-3, 2e-3, 5.0}),
      [&](Trial& trial) -> std::optional<double> {
        Trainer trainer(new_model(0), arguments_for(trial, base_arguments(folder)),
                        parts_of_trial());
        const auto value = train_trial(trainer, trial);
        steps.push_back(trainer.state().global_step);
        return value;
      },
      {.folder = folder.path / "journal",
       .method = SearchMethod::grid,
       .pruner = MedianPruner{.n_startup_trials = 2}});
  REQUIRE(result.trials.size() == 3);
  for (const FinishedTrial& trial : result.trials) {
    CAPTURE(trial.number);
    CHECK(trial.reports.count(2) == 1);
    CHECK(fs::is_directory(folder.path / str("run-", trial.number)));
  }
  CHECK(result.trials[0].state == TrialState::complete);
  CHECK(result.trials[0].reports.size() == 3);
  CHECK(result.trials[0].value == result.trials[0].reports.at(6));
  CHECK(result.trials[2].state == TrialState::pruned);
  CHECK(steps == std::vector<std::int64_t>{6, 6, 2});
  REQUIRE(result.best() != nullptr);
  CHECK(result.best()->number != 2);
}

TEST_CASE("search with the Trainer: a run without evaluations is evaluated at its end") {
  const Folder folder;
  TrainingArguments base = base_arguments(folder);
  base.eval_strategy = IntervalStrategy::no;
  const SearchResult result = search_hyperparameters(
      SearchSpace().choice("max_steps", {1, 2}),
      [&](Trial& trial) -> std::optional<double> {
        Trainer trainer(new_model(0), arguments_for(trial, base), parts_of_trial());
        const auto value = train_trial(trainer, trial);
        CHECK(trainer.state().global_step == trial.integer("max_steps"));
        CHECK(value == trainer.evaluate().at("eval_loss"));
        // The trial gets no further reports.
        CHECK(trainer.evaluate("test").contains("test_loss"));
        return value;
      },
      {.method = SearchMethod::grid});
  CHECK(result.trials.size() == 2);
}

TEST_CASE("search with the Trainer: after a restart of the job an unfinished trial begins anew") {
  struct ThrowingCallback : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      if (event.state.global_step == 5) throw std::domain_error("the first attempt fails");
    }
  };
  const Folder folder;
  TrainingArguments base = base_arguments(folder);
  base.save_strategy = SaveStrategy::steps;
  base.save_steps = 2;
  const auto search = [&](const char* restarts) {
    const ScopedTorchrunVariables job("search", restarts);
    return search_hyperparameters(
        SearchSpace().choice("learning_rate", {1e-3}),
        [&](Trial& trial) -> std::optional<double> {
          TrainerParts parts = parts_of_trial();
          if (*restarts == '0') parts.callbacks = {std::make_shared<ThrowingCallback>()};
          Trainer trainer(new_model(0), arguments_for(trial, base), parts);
          return train_trial(trainer, trial);
        },
        {.folder = folder.path / "journal", .method = SearchMethod::grid});
  };
  CHECK_THROWS_AS(search("0"), std::domain_error);
  const SearchResult result = search("1");
  REQUIRE(result.trials.size() == 1);
  CHECK(result.trials[0].reports.size() == 3);
}

TEST_CASE("search with the Trainer: an unknown argument or metric is an error") {
  const Folder folder;
  const auto search = [&](const SearchSpace& space, const std::string& metric) {
    return code_of([&] {
      (void)search_hyperparameters(space,
                                   [&](Trial& trial) -> std::optional<double> {
                                     Trainer trainer(new_model(0),
                                                     arguments_for(trial, base_arguments(folder)),
                                                     parts_of_trial());
                                     return train_trial(trainer, trial, metric);
                                   },
                                   {.n_trials = 1});
    });
  };
  CHECK(search(SearchSpace().uniform("lerning_rate", 0, 1), "eval_loss") == "config.unknown-key");
  CHECK(search(SearchSpace().uniform("learning_rate", 0, 1e-3), "eval_f1") ==
        "trainer.unknown-metric");
}

}  // namespace trainer_train_trial_test
