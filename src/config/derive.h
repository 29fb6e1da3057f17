// File: config/derive.h (internal)
// Values that follow from other values, with the name of the one they follow: for the list of
// origins.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/training_arguments.h"

namespace hasten::config {

struct Derived {
  std::string name;
  std::string from;
};

// Fills them in; expects arguments that check_contradictions() let pass.
std::vector<Derived> derive(TrainingArguments& arguments);

// Throws ConfigError for values that do not go together. The limits of single values are the
// description's.
void check_contradictions(const TrainingArguments& arguments);

}  // namespace hasten::config
