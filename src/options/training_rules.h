// File: options/training_rules.h (internal)
// The rules for training arguments that are not part of their descriptions: names that hasten knows
// but does not support, contradictions between values, and values that follow from other values.
// The keys of their maps are in options/kwarg_rules.h.
//
//   check_contradictions(arguments);
//   for (const DerivedValue& each : derive(arguments))
//     std::cout << each.name << " from " << each.from;
//
// Throws ConfigError "config.*". Thread rule: constants and pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/training_arguments.h"
#include "options/describe.h"

namespace hasten::config {

// Describe the arguments, optimizers and trackers of Hugging Face Trainer that hasten knows but
// does not support.
void describe_unsupported_optimizers(Option& optim);
std::vector<std::string> unsupported_trackers();
void describe_known_names(Describer<TrainingArguments>& d);

// Returns the name that an evaluation gives a metric: "eval_loss" for "loss" and for "eval_loss".
HASTEN_INTERNAL_API std::string eval_metric_name(const std::string& name);

// Throws ConfigError for values that contradict each other, and for keys that the chosen schedule
// or optimizer does not have. The limits of single values are in their descriptions.
void check_contradictions(const TrainingArguments& arguments);

// An argument that does not allow a graph of the operations of a step, with the reason, and the
// remedy. Both are empty if there is no such argument.
struct GraphConflict {
  std::string what = "", hint = "";
};
HASTEN_INTERNAL_API GraphConflict graph_conflict(const TrainingArguments& arguments);
// The same for a run that does not ask for graphs. It also has none if graphs would change more
// than the time.
HASTEN_INTERNAL_API GraphConflict automatic_graph_conflict(const TrainingArguments& arguments);

// A value that follows from another one.
struct DerivedValue {
  std::string name;
  std::string from;
};
// Fills in the values that follow from others, and returns them. The arguments must have passed
// check_contradictions().
std::vector<DerivedValue> derive(TrainingArguments& arguments);

}  // namespace hasten::config
