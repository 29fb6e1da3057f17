// File: options/training_rules.h (internal)
// The rules for training arguments beyond the description of each: the names that hasten only
// knows, the keys of their maps, contradictions between values, and values that follow from others.
//
//   check_contradictions(arguments);
//   for (const Derived& each : derive(arguments)) std::cout << each.name << " from " << each.from;
//
// Throws ConfigError "config.*". Thread rule: constants and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/training_arguments.h"
#include "options/describe.h"

namespace hasten::config {

// Arguments, optimizers and trackers of Hugging Face Trainer that hasten knows by name only.
void describe_unsupported_optimizers(Option& optim);
std::vector<std::string> unsupported_trackers();
void describe_known_names(Describer<TrainingArguments>& d);

// Returns the name that an evaluation gives a metric: "eval_loss" for "loss" and for "eval_loss".
HASTEN_INTERNAL_API std::string eval_metric_name(const std::string& name);

// A key that lr_scheduler_kwargs or optim_args may hold for a schedule or an optimizer. The checks
// and the reference page use the same table.
struct KwargRule {
  std::string_view owner;  // a schedule or an optimizer
  std::string_view name;
  std::string_view default_text;  // "required", or what applies without the key
  std::string_view help;
  double least = 0;                  // a number's lower limit, inclusive
  bool whole = false;                // the number must be whole
  std::vector<std::string> words{};  // if not empty, the value is one of these and not a number
  std::optional<double> below{};     // a number's upper limit, exclusive
  bool above = false;                // a number's lower limit is exclusive
  bool is_text = false;              // any text
};
const std::vector<KwargRule>& schedule_rules();
const std::vector<KwargRule>& optimizer_rules();
const std::vector<KwargRule>& recomputation_rules();

// Throws ConfigError for values that contradict each other, and for keys that the chosen schedule
// or optimizer does not take. The limits of single values are in their description.
void check_contradictions(const TrainingArguments& arguments);

// A value that follows from another one.
struct Derived {
  std::string name;
  std::string from;
};
// Fills in such values. The arguments must have passed check_contradictions().
std::vector<Derived> derive(TrainingArguments& arguments);

}  // namespace hasten::config
