#include "search/median_pruner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace hasten {
namespace {

constexpr double kNoMedian = std::numeric_limits<double>::quiet_NaN();

// Returns the median of the numbers that are not NaN, or NaN if there is none. The result equals
// NumPy's to the last bit.
double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kNoMedian;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  const double below = values[middle - 1], above = values[middle];
  return below == above ? above : above - (above - below) * 0.5;
}

// Returns the best value that is not NaN, or NaN if there is none.
double best_of(const TrialReports& reports, SearchDirection direction) {
  double best = kNoMedian;
  for (const auto& [step, value] : reports) {
    const bool is_better = direction == SearchDirection::minimize ? value < best : value > best;
    if (std::isnan(best) || is_better) best = value;
  }
  return best;
}

// True if no earlier report is in the interval of the last one.
bool is_first_in_interval(const MedianPruner& pruner, const TrialReports& reports) {
  const std::int64_t last = reports.rbegin()->first;
  const std::int64_t begin =
      (last - pruner.n_warmup_steps) / pruner.interval_steps * pruner.interval_steps +
      pruner.n_warmup_steps;
  return reports.size() == 1 || std::next(reports.rbegin())->first < begin;
}

}  // namespace

bool is_worse_than_median(const MedianPruner& pruner, SearchDirection direction,
                          const std::vector<const TrialReports*>& complete,
                          const TrialReports& reports) {
  const auto count = static_cast<std::int64_t>(complete.size());
  if (reports.empty() || count == 0 || count < pruner.n_startup_trials) return false;
  const std::int64_t step = reports.rbegin()->first;
  if (step < pruner.n_warmup_steps || !is_first_in_interval(pruner, reports)) return false;
  const double best = best_of(reports, direction);
  if (std::isnan(best)) return true;
  std::vector<double> others;
  for (const TrialReports* each : complete) {
    if (const auto found = each->find(step); found != each->end()) others.push_back(found->second);
  }
  if (static_cast<std::int64_t>(others.size()) < pruner.n_min_trials) return false;
  const double median = median_of(std::move(others));
  return direction == SearchDirection::minimize ? best > median : best < median;
}

}  // namespace hasten
