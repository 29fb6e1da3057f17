// File: options/known_names.h (internal)
// Arguments, optimizers and trackers of Hugging Face Trainer that hasten knows by name only.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/training_arguments.h"
#include "options/describe.h"

namespace hasten::config {

std::vector<std::string> unsupported_optimizers();
std::vector<std::string> unsupported_trackers();
void describe_known_names(Describer<TrainingArguments>& d);

}  // namespace hasten::config
