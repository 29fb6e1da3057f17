// File: config/known_names.h (internal)
// The peer's arguments, optimizers and trackers that hasten knows by name only.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/describe.h"
#include "hasten/config/training_arguments.h"

namespace hasten::config {

std::vector<std::string> optimizers_not_yet();
std::vector<std::string> trackers_not_yet();
void describe_known_names(Describer<TrainingArguments>& d);

}  // namespace hasten::config
