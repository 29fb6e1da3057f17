// File: options/derive.h (internal)
// Computes values that follow from other values, and names the options they follow from, for the
// list of origins.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/training_arguments.h"

namespace hasten::config {

struct Derived {
  std::string name;
  std::string from;
};

// Fills in the values. The arguments must have passed check_contradictions().
std::vector<Derived> derive(TrainingArguments& arguments);

// Throws ConfigError for values that contradict each other. The limits of single values are in
// their description.
void check_contradictions(const TrainingArguments& arguments);

}  // namespace hasten::config
