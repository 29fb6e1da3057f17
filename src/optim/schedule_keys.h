// File: optim/schedule_keys.h (internal)
// Checks and reads the keyword arguments of a schedule. The keys and their defaults are the
// lr_scheduler_kwargs in the table of options/kwarg_rules.h, so a new key is a row of that table.
//
//   check_schedule_keys(SchedulerType::cosine, {{"num_cycles", 0.5}});
//   schedule_number(SchedulerType::cosine, {}, "num_cycles");   // 0.5, the default
//
// The first two functions throw ConfigError "optim.scheduler-kwargs"; the others throw ConfigError
// "config.bad-value" for a value of another kind. Thread rule: pure functions.
#pragma once

#include <string>

#include "hasten/options/detail/kwargs.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

[[noreturn]] void throw_schedule_kwargs(SchedulerType type, std::string got, std::string expected);
// Throws if the schedule does not have one of the keys.
void check_schedule_keys(SchedulerType type, const Kwargs& kwargs);

// Each returns the value of a key, or its default in the table if there is none.
double schedule_number(SchedulerType type, const Kwargs& kwargs, const std::string& name);
std::string schedule_text(SchedulerType type, const Kwargs& kwargs, const std::string& name);
bool schedule_flag(SchedulerType type, const Kwargs& kwargs, const std::string& name);

}  // namespace hasten
