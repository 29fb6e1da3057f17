// File: plan/model_settings.h (internal)
// The options of `hasten train` that give the model and the rows of an estimate. Without them a
// file of training arguments would train a different model, or longer rows than the plan assumes.
//
//   for (const auto& [name, value] : model_settings_of(step)) std::cout << name << ": " << value << '\n';
//
// Thread rule: pure functions, except that the model's config.json is read.
#pragma once

#include "hasten/plan/plan.h"

namespace hasten {

// Values are JSON. Those that are the defaults of `hasten train` are left out.
PlanSettings model_settings_of(const EstimateOptions& step);

}  // namespace hasten
