// File: trainer/trainer_checks.h (internal)
// The checks of a Trainer's arguments, model and parts. A Trainer makes them when it is created, so
// that a mistake is reported before anything is trained.
//
//   check_batch_types(parts, forward);
//   check_evaluations(args, parts);
//
// Each throws the error that its comment names. Thread rule: pure functions.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "hasten/options/training_arguments.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

// Throws UsageError "data.batch-type" if a dataset has a different type than a function takes.
void check_batch_types(const TrainerParts& parts, const LossFunction& forward);

// Throws ConfigError "trainer.label-smoothing" or "trainer.average-tokens" for arguments that
// contradict how the loss is computed. `ranks` is the number of ranks that divide the data.
void check_losses(const TrainingArguments& args, const TrainerParts& parts, std::int64_t ranks);

// Throws UsageError "trainer.no-eval-data" if evaluations are requested and there is no data for
// them, and ConfigError "trainer.unknown-metric" if they cannot have the metric_for_best_model.
void check_evaluations(const TrainingArguments& args, const TrainerParts& parts);

// Throws ConfigError "trainer.weights-dtype" for a model whose operators were chosen for other
// types of weights.
void check_convertible(const torch::nn::Module& model);

// Throws ConfigError "trainer.label-smoothing" if the configuration of the model says that its
// labels cannot be smoothed. A model with outputs of tokens may be a language model, whose loss
// does not depend on the problem type.
void check_smoothed_model(const TrainingArguments& args, const torch::nn::Module& model);

// Throws the same if the labels of a batch cannot be smoothed. Logits [rows, classes] are those of
// a model that classifies rows.
void check_smoothed_labels(const TrainingArguments& args, const torch::nn::Module& model,
                           const at::Tensor& labels, const at::Tensor& logits);

}  // namespace hasten
