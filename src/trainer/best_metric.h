// File: trainer/best_metric.h (internal)
// The metric that metric_for_best_model names, and the best value of it in a run.
//
//   const bool is_best = note_best(args, metrics, state);
//
// Throws ConfigError "trainer.unknown-metric" if the evaluation does not compute it. Thread rule:
// pure functions.
#pragma once

#include "hasten/options/training_arguments.h"
#include "hasten/trainer/trainer_state.h"

namespace hasten {

// Returns a metric of an evaluation; `what` says in the error who names it.
double find_metric(const Metrics& metrics, const std::string& name, const std::string& what);

// Returns the value of metric_for_best_model.
double metric_for_best(const TrainingArguments& args, const Metrics& metrics);

// Stores the metric and the step in the state if it is better than every one before. Returns false
// if it is not, and without metric_for_best_model.
bool note_best(const TrainingArguments& args, const Metrics& metrics, TrainerState& state);

}  // namespace hasten
