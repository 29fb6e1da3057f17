#include "track/histogram.h"

#include <algorithm>
#include <cmath>

namespace hasten {
namespace {

// Returns the limits from -1e20 to 1e20: 0, and 1e-12 times the powers of 1.1, with both signs.
std::vector<double> bucket_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  std::vector<double> all;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
  all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

// Counts the values in each bucket [limits[i], limits[i + 1]); the last bucket includes its upper
// limit.
std::vector<double> count_per_bucket(const std::vector<double>& limits,
                                     std::span<const double> values) {
  std::vector<double> counts(limits.size() - 1, 0.0);
  for (const double value : values) {
    if (!(value >= limits.front() && value <= limits.back())) continue;
    const auto above = std::upper_bound(limits.begin(), limits.end(), value);
    const auto bucket = static_cast<std::size_t>(above - limits.begin()) - 1;
    ++counts[std::min(bucket, counts.size() - 1)];
  }
  return counts;
}

}  // namespace

Histogram histogram(std::span<const double> values) {
  Histogram out;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    out.min = out.count == 0 ? value : std::min(out.min, value);
    out.max = out.count == 0 ? value : std::max(out.max, value);
    out.sum += value;
    out.sum_of_squares += value * value;
    ++out.count;
  }
  static const std::vector<double> limits = bucket_limits();
  const std::vector<double> counts = count_per_bucket(limits, values);
  const auto has_values = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), has_values);
  if (first == counts.end()) return out;
  const auto last = std::find_if(counts.rbegin(), counts.rend(), has_values).base();
  const auto begin = limits.begin() + (first - counts.begin());
  out.counts.push_back(0);
  out.counts.insert(out.counts.end(), first, last);
  out.limits.assign(begin, begin + (last - first) + 1);
  return out;
}

}  // namespace hasten
