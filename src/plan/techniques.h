// File: plan/techniques.h (internal)
// The techniques that a plan chooses from. Each is data: its name, the group of which a plan takes
// at most one, what it sets, and what it costs. A new technique is a row of the table in
// techniques.cpp. Which of them can be combined follows from the rules of the training arguments
// (options/training_rules.h).
//
// The benchmark of plans uses it too. Thread rule: constants and pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/plan/plan.h"

namespace hasten {

struct Technique {
  std::string name, group;
  Exactness exactness = Exactness::exact;
  std::string effect;  // a sentence
  PlanSettings sets;   // training arguments as JSON, or attn_implementation
  // The optimizers for which `exactness` holds; in place of another one it is Exactness::other.
  // Empty: it does not depend on the optimizer.
  std::vector<OptimizerName> optimizers = {};
};

using TechniqueSet = std::vector<const Technique*>;  // in the order of the table

const std::vector<Technique>& techniques();
// Throws ConfigError "plan.unknown-technique".
const Technique& find_technique(const std::string& name);
// Recomputes these layers only.
Technique recomputation_of(const std::vector<std::string>& layers);
// Gives each row this many tokens; a change for comparisons only.
Technique rows_of_length(std::int64_t length);
// Sets the defaults of what the technique sets.
Technique without_technique(const Technique& technique);
// True if the step is made for a TPU.
bool is_for_tpu(const EstimateOptions& step);

HASTEN_INTERNAL_API PlanSettings settings_of(const TechniqueSet& set);
// Returns the changes of training arguments as a JSON object.
HASTEN_INTERNAL_API std::string argument_changes(const PlanSettings& settings);
HASTEN_INTERNAL_API EstimateOptions with_settings(EstimateOptions options,
                                                  const PlanSettings& settings);
// False if the arguments contradict each other.
HASTEN_INTERNAL_API bool is_valid(const TrainingArguments& arguments);
// True if the options already have what the technique sets.
bool is_set(const EstimateOptions& options, const Technique& technique);
// The exactness of the technique as a change of this step.
Exactness exactness_of(const EstimateOptions& step, const Technique& technique);
// Returns the reason why a plan does not consider the technique for the device or the program;
// empty: there is none.
std::string obstacle_to(const PlanOptions& options, const Technique& technique);

// Sets of techniques that the arguments take together, as exact as PlanOptions::exactness, with all
// of `use` and none of `avoid`. Throws ConfigError "plan.contradiction" if two of `use` exclude
// each other, or if one is avoided or impossible.
HASTEN_INTERNAL_API std::vector<TechniqueSet> combinations(const PlanOptions& options);

}  // namespace hasten
