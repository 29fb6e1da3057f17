// File: hasten/trainer/train_trial.h
// Trains a trial of a hyper-parameter search with a Trainer: its evaluations are the trial's
// reports, and a trial that is pruned ends after the current step.
//
//   TrainingArguments base{.output_dir = "search", .eval_strategy = IntervalStrategy::epoch};
//   const SearchResult result = search_hyperparameters(
//       SearchSpace().log_uniform("learning_rate", 1e-5, 1e-3).choice("max_steps", {100, 200}),
//       [&](Trial& trial) -> std::optional<double> {
//         Trainer of_trial(new_model(), arguments_for(trial, base),
//                          {.train_dataset = train_rows, .eval_dataset = eval_rows});
//         return train_trial(of_trial, trial);
//       },
//       {.folder = "search", .n_trials = 20});
//   std::cout << to_text(result, "eval_loss");
//
// Each trial needs a new model. A search with n_jobs above 1 trains several models at once in this
// process: LibTorch's random numbers and threads are then shared, so results differ between runs;
// `hasten search` runs each trial in a process of its own. Throws what Trainer::train() throws,
// and ConfigError "trainer.unknown-metric" if an evaluation does not return the metric.
// Thread rule: the same as for the Trainer.
#pragma once

#include <optional>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/search/detail/trial_arguments.h"
#include "hasten/search/search.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

// Trains, and returns the metric of the last evaluation, or nothing if the trial was stopped. The
// metric is metric_for_best_model, or else eval_loss. A run that does not end with an evaluation,
// or that loads its best model, is evaluated at the end. Each evaluation reports the metric at its
// optimizer step. The Trainer is used for this trial alone. A trial of a job that was restarted
// starts again. Throws what train() throws, and ConfigError "trainer.unknown-metric" if an
// evaluation does not return the metric.
HASTEN_API std::optional<double> train_trial(Trainer& trainer, Trial& trial);
// The same with another metric, such as "eval_f1".
HASTEN_API std::optional<double> train_trial(Trainer& trainer, Trial& trial,
                                             const std::string& metric);

}  // namespace hasten
