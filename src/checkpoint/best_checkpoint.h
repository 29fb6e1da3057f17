// File: checkpoint/best_checkpoint.h (internal)
// The best checkpoint of a run by a metric, which rotation never deletes.
//
//   if (is_better(metric, best ? std::optional(best->metric) : std::nullopt, /*greater=*/false))
//     best = {.number = 500, .metric = metric};
//
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace hasten {

struct BestCheckpoint {
  std::int64_t number = 0;  // in the name of its folder
  double metric = 0;
};

// True if the metric is better than the best one so far, which is unset in the beginning. A metric
// that is not finite is never better.
inline bool is_better(double metric, const std::optional<double>& best, bool greater_is_better) {
  if (!std::isfinite(metric)) return false;
  return !best || (greater_is_better ? metric > *best : metric < *best);
}

}  // namespace hasten
