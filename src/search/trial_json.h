// File: search/trial_json.h (internal)
// A trial as a JSON object, in the journal and in the results of a search.
//
//   {"trial": 3, "state": "complete", "parameters": {"learning_rate": 3.1e-05}, "value": 0.41,
//    "reports": [[10, 0.6], [20, 0.41]], "seconds": 12.5}
//
// A number that is not finite is the text "nan", "inf" or "-inf". Complete trials have a value that
// is not "nan", and other trials have none. Throws nlohmann's exceptions for an object of a
// different form. Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "hasten/search/search.h"

namespace hasten {

using TrialJson = nlohmann::ordered_json;

TrialJson parameters_json(const TrialParameters& parameters);
TrialJson trial_json(const FinishedTrial& trial);
// Reads everything but the parameters.
FinishedTrial trial_in(const TrialJson& json);

}  // namespace hasten
