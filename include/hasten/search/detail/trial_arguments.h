// File: hasten/search/detail/trial_arguments.h
// The training arguments of a trial: the arguments of the search with the values that the trial
// proposes.
//
//   TrainingArguments of_trial = arguments_for(trial, {.output_dir = "search", .max_steps = 500});
//
// Thread rule: a pure function.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/options/training_arguments.h"
#include "hasten/search/search.h"

namespace hasten {

// Returns the arguments with each parameter of the trial set as the argument of the same name.
// output_dir becomes its subfolder run-N for trial N, and overwrite_output_dir becomes true, so a
// trial that starts again does not continue the old run. Throws ConfigError "config.*" for a
// parameter that is not an argument, or for a value that the argument does not accept.
HASTEN_API TrainingArguments arguments_for(const Trial& trial, TrainingArguments arguments);

}  // namespace hasten
