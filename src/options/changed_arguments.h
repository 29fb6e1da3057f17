// File: options/changed_arguments.h (internal)
// Changes training arguments by name, as a plan does with the settings of its techniques.
//
//   const TrainingArguments changed = with_changes(arguments, R"({"bf16": true, "optim_args": null})");
//
// `changes` is a JSON object; null restores the default of an argument. Throws ConfigError
// "config.*" for an unknown name or a value out of its range. resolved() reports contradictions
// between arguments. Thread rule: pure functions.
#pragma once

#include <string>

#include "base/internal_api.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

HASTEN_INTERNAL_API TrainingArguments with_changes(const TrainingArguments& arguments,
                                                   const std::string& changes);

}  // namespace hasten
