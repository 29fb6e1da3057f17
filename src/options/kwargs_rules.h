// File: options/kwargs_rules.h (internal)
// The keys that lr_scheduler_kwargs and optim_args may hold for each schedule and optimizer. The
// checks and the reference page use the same table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/options/training_arguments.h"

namespace hasten::config {

struct KwargRule {
  std::string_view owner;  // a schedule or an optimizer
  std::string_view name;
  std::string_view default_text;  // "required", or what applies without the key
  std::string_view help;
  double least = 0;                  // a number's lower limit, inclusive
  bool whole = false;                // the number must be whole
  std::vector<std::string> words{};  // if not empty, the value is one of these and not a number
};

const std::vector<KwargRule>& schedule_rules();
const std::vector<KwargRule>& optimizer_rules();

// Throws ConfigError for keys that the chosen schedule does not take, values out of range, missing
// keys, and contradictions.
void check_schedule_kwargs(const TrainingArguments& arguments);
// The same for the chosen optimizer.
void check_optimizer_args(const TrainingArguments& arguments);

}  // namespace hasten::config
