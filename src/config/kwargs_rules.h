// File: config/kwargs_rules.h (internal)
// Which keys lr_scheduler_kwargs and optim_args may hold, for each schedule and optimizer: one
// table for the checks and for the reference page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/training_arguments.h"

namespace hasten::config {

struct KwargRule {
  std::string_view owner;  // a schedule or an optimizer
  std::string_view name;
  std::string_view default_text;  // "required", or what holds without it
  std::string_view help;
  double least = 0;                  // numbers may not be below
  bool whole = false;                // a count
  std::vector<std::string> words{};  // one of these instead of a number
};

const std::vector<KwargRule>& schedule_rules();
const std::vector<KwargRule>& optimizer_rules();

// Throws ConfigError for keys that the chosen schedule or optimizer does not take, values out of
// range, what is missing, and what contradicts.
void check_schedule_kwargs(const TrainingArguments& arguments);
void check_optimizer_args(const TrainingArguments& arguments);

}  // namespace hasten::config
