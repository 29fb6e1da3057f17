// File: hasten/search/trial_arguments.h
// The training arguments of a trial: those of the search, with the values that the trial proposes.
//
//   TrainingArguments of_trial = arguments_for(trial, {.output_dir = "search", .max_steps = 500});
//
// Thread rule: a pure function.
#pragma once

#include "hasten/base/export.h"
#include "hasten/options/training_arguments.h"
#include "hasten/search/search.h"

namespace hasten {

// Returns the arguments with each parameter of the trial under the argument's name, and the folder
// run-N of the trial in output_dir, which a trial that begins anew starts over. Throws ConfigError
// "config.*" for a parameter that is not an argument, or whose value the argument does not take.
HASTEN_API TrainingArguments arguments_for(const Trial& trial, TrainingArguments arguments);

}  // namespace hasten
