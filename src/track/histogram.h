// File: track/histogram.h (internal)
// A histogram as TensorBoard keeps it: counts in buckets whose limits grow by a tenth each, with
// one empty bucket before the first that has values.
//
//   const Histogram of_weights = histogram(values);
//   of_weights.counts[i];       // values in (limits[i - 1], limits[i])
//
// Thread rule: a pure function. Source: torch.utils.tensorboard, make_histogram with its default
// bins and numpy.histogram.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hasten {

struct Histogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::int64_t count = 0;
  std::vector<double> limits;  // The upper limit of each bucket.
  std::vector<double> counts;
};

// Values that are not finite are left out. If no values are left, the histogram has no buckets.
Histogram histogram(std::span<const double> values);

}  // namespace hasten
