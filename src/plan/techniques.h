// File: plan/techniques.h (internal)
// The techniques that a plan chooses from. Each is data: its name, its group, the settings that it
// changes, and its effect. A plan uses at most one technique of a group. A new technique is a row
// of the table in techniques.cpp. The rules of the training arguments (options/training_rules.h)
// determine which of them can be combined.
//
// The benchmark of plans uses it too. Thread rule: constants and pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/plan/plan.h"

namespace hasten {

// The setting of a technique that is not a training argument but the implementation of attention.
inline constexpr const char* kAttentionSetting = "attn_implementation";

struct Technique {
  std::string name, group;
  Exactness exactness = Exactness::exact;
  std::string effect;  // a sentence
  PlanSettings sets;   // training arguments as JSON, or attn_implementation
  // The optimizers for which `exactness` holds. If the technique replaces another optimizer, the
  // exactness is Exactness::other. Empty if it does not depend on the optimizer.
  std::vector<OptimizerName> optimizers = {};
};

using TechniqueSet = std::vector<const Technique*>;  // in the order of the table

const std::vector<Technique>& techniques();
// Throws ConfigError "plan.unknown-technique".
const Technique& find_technique(const std::string& name);
// Returns the technique that recomputes only these layers.
Technique recomputation_of(const std::vector<std::string>& layers);
// Returns a technique that gives each row this many tokens. It is for comparisons only.
Technique rows_of_length(std::int64_t length);
// Returns a technique that resets the settings of `technique` to their defaults.
Technique without_technique(const Technique& technique);
// True if the technique changes this setting.
bool has_setting(const Technique& technique, const std::string& name);

HASTEN_INTERNAL_API PlanSettings settings_of(const TechniqueSet& set);
// Returns the changes of training arguments as a JSON object.
HASTEN_INTERNAL_API std::string argument_changes(const PlanSettings& settings);
HASTEN_INTERNAL_API EstimateOptions with_settings(EstimateOptions options,
                                                  const PlanSettings& settings);
// False if the arguments contradict each other.
HASTEN_INTERNAL_API bool is_valid(const TrainingArguments& arguments);
// True if the options already have all settings of the technique.
bool is_set(const EstimateOptions& options, const Technique& technique);
// Returns the exactness of the technique as a change of this step.
Exactness exactness_of(const EstimateOptions& step, const Technique& technique);
// Returns the reason why a plan does not consider the technique for the device or the program, or
// an empty text if there is none.
std::string exclusion_reason(const PlanOptions& options, const Technique& technique);

// Returns the sets of techniques that the arguments allow together. They are at least as exact as
// PlanOptions::exactness, and contain all of `use` and none of `avoid`. Throws ConfigError
// "plan.contradiction" if two techniques of `use` exclude each other, or if one is avoided or
// impossible.
HASTEN_INTERNAL_API std::vector<TechniqueSet> combinations(const PlanOptions& options);

}  // namespace hasten
