// File: search/median_pruner.h (internal)
// Decides whether a trial is worse than the median of the complete ones.
//
//   if (is_worse_than_median(pruner, direction, complete, {{10, 0.7}, {20, 0.9}})) stop();
//
// Thread rule: a pure function. Source: Optuna's MedianPruner, with the same decisions
// (tests/oracle/search_test.cpp). An infinite value counts as a number here, while NumPy's
// percentile of infinite values, which Optuna uses, is NaN.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "hasten/search/search.h"

namespace hasten {

// The values that a trial has reported, by step.
using TrialReports = std::map<std::int64_t, double>;

// Decides for the trial that made `reports`, which end at its current step. `complete` has the
// reports of the complete trials.
bool is_worse_than_median(const MedianPruner& pruner, SearchDirection direction,
                          const std::vector<const TrialReports*>& complete,
                          const TrialReports& reports);

}  // namespace hasten
