// File: cli/train_results.h
// The end of a run of `hasten train`: its model, metrics, evaluation and predictions in output_dir.
//
//   const EndWork work = work_at_end(trainer, result, {.evaluates = true});
//   if (work.saves) save_trained(trainer, result);
//   if (work.evaluates) evaluate(trainer);
//
// The results of an earlier model are deleted before a new model is saved. So a result that is
// missing beside the model is work that is left, for example because the job was killed: a run that
// continues at its last step does this work. All processes call these functions, which throw what
// the Trainer throws.
#pragma once

#include <string>

#include "hasten/trainer/detail/trainer_dataset.h"
#include "hasten/trainer/trainer.h"

namespace hasten::cli {

// The work after the last step.
struct EndWork {
  bool saves = false;  // the model, and the metrics and the state of the training
  bool evaluates = false;
  bool predicts = false;
};

// Returns the work that a run has at its end. `requested` says whether the arguments ask for an
// evaluation and for predictions. A run that has made no step because it is at its last one has
// only the work that is left; one that has made no step for another reason has none.
EndWork work_at_end(const Trainer& trainer, const TrainOutput& result, EndWork requested);

// Saves the metrics, the state and the model. If the metrics or the state cannot be written, it
// saves the model nevertheless, and then throws the error.
void save_trained(Trainer& trainer, const TrainOutput& result);
// Evaluates the model, and saves and prints the metrics.
void evaluate(Trainer& trainer);
// Saves the predictions and their metrics.
void predict(Trainer& trainer, const TrainerDataset& data);

void print_warning(const std::string& text);

}  // namespace hasten::cli
