// File: trainer/best_metric.h (internal)
// The metric that metric_for_best_model names, and the best value of it in a run.
//
//   const bool is_best = update_best_metric(args, metrics, state);
//
// Throws ConfigError "trainer.unknown-metric" if the evaluation does not compute it. Thread rule:
// pure functions.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/training_arguments.h"
#include "hasten/trainer/detail/trainer_state.h"

namespace hasten {

// Throws ConfigError "trainer.unknown-metric". `what` is the part of the error that says who names
// the metric.
[[noreturn]] void throw_unknown_metric(const std::string& what, const std::string& name,
                                       const std::vector<std::string>& known);

// Returns a metric of an evaluation. `what` is as above.
double find_metric(const Metrics& metrics, const std::string& name, const std::string& what);

// Returns the value of metric_for_best_model.
double metric_for_best(const TrainingArguments& args, const Metrics& metrics);

// Stores the metric and the step in the state if the metric is better than every earlier one.
// Returns false otherwise, and without metric_for_best_model.
bool update_best_metric(const TrainingArguments& args, const Metrics& metrics, TrainerState& state);

}  // namespace hasten
