// File: ops/kernels/cross_entropy.h (internal)
// The cross entropy of rows of logits, and its gradient in their place.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

template <class T>
void cross_entropy(T* __restrict logits, const Index* __restrict labels, Index ignored,
                   float smoothing, bool differentiates, float* __restrict losses, Index rows,
                   Index columns) {
  const float even = smoothing / static_cast<float>(columns);
  for (Index r = 0; r < rows; ++r, logits += columns) {
    if (labels[r] == ignored) {
      losses[r] = 0;
      if (differentiates)
        for (Index c = 0; c < columns; ++c) store(logits[c], 0.0f);
      continue;
    }
    float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
    for (Index c = 0; c < columns; ++c) {
      const float x = load(logits[c]);
      top = x > top ? x : top;
    }
    // Sums short ranges in float and adds them in double, because there are many classes.
    constexpr Index stretch = 4096;
    double total = 0, shifted_total = 0;
    for (Index first = 0; first < columns; first += stretch) {
      const Index last = std::min(columns, first + stretch);
      float sum = 0, shifted_sum = 0;
#pragma omp simd reduction(+ : sum, shifted_sum)
      for (Index c = first; c < last; ++c) {
        const float x = load(logits[c]) - top;
        sum += exp(x);
        shifted_sum += x;
      }
      total += static_cast<double>(sum);
      shifted_total += static_cast<double>(shifted_sum);
    }
    // The logarithms of the probabilities are logits - top - log_sum.
    const double log_sum = std::log(total);
    const double of_label = static_cast<double>(load(logits[labels[r]]) - top) - log_sum;
    const double of_all = shifted_total / static_cast<double>(columns) - log_sum;
    const double share = static_cast<double>(smoothing);
    losses[r] = static_cast<float>(-(1 - share) * of_label - (share > 0 ? share * of_all : 0));
    if (!differentiates) continue;
    const float base = top + static_cast<float>(log_sum);
    const float at_label = exp(load(logits[labels[r]]) - base) - even - (1 - smoothing);
    for (Index c = 0; c < columns; ++c) store(logits[c], exp(load(logits[c]) - base) - even);
    store(logits[labels[r]], at_label);
  }
}

}  // namespace hasten::ops::HASTEN_ISA
