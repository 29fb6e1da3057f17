// File: optim/schedule_keys.h (internal)
// Checks the keyword arguments of a schedule. The keys are the lr_scheduler_kwargs in the table of
// options/kwarg_rules.h, so a new key is a row of that table.
//
//   check_schedule_keys(SchedulerType::cosine, {{"num_cycles", 0.5}});
//
// Both functions throw ConfigError "optim.scheduler-kwargs". Thread rule: pure functions.
#pragma once

#include <string>

#include "hasten/options/detail/kwargs.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

[[noreturn]] void throw_schedule_kwargs(SchedulerType type, std::string got, std::string expected);
// Throws if the schedule does not have one of the keys.
void check_schedule_keys(SchedulerType type, const Kwargs& kwargs);

}  // namespace hasten
