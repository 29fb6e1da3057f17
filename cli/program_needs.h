// File: cli/program_needs.h
// Predicts the steps of a program that trains with a hasten::Trainer, for `hasten plan`. The
// program is run dry once for each prediction. Its Trainers use the settings of the plan instead of
// their own (attach/attach.h).
//
//   const PlannedProgram program = inspect_program(argv[0], {"./train", "--epochs", "3"}, "cpu");
//   program.arguments.per_device_train_batch_size;    // what the program asks for
//
// Thread rule: one call at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/options/training_arguments.h"
#include "hasten/plan/plan.h"

namespace hasten::cli {

struct PlannedProgram {
  TrainingArguments arguments;  // The arguments of its first Trainer.
  std::int64_t resident = 0;    // The memory of the process before the first Trainer begins.
  // Throws UsageError "plan.program" if the program makes no step with the settings.
  StepPredictor predictor;
};

// `hasten` is the command name with which this process was called. Runs the program dry once.
// Throws UsageError "plan.program" if it makes no step with a Trainer.
PlannedProgram inspect_program(const std::string& hasten, const std::vector<std::string>& program,
                               const std::string& device);

}  // namespace hasten::cli
