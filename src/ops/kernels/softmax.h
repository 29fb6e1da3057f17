// File: ops/kernels/softmax.h (internal)
// Softmax and dropout of a block of attention scores, in place, and the backward pass, which
// recomputes both from the scores.
#pragma once

#include <limits>

#include "ops/kernels/philox.h"

namespace hasten::ops::HASTEN_ISA {

template <class T>
void softmax_dropout(T* __restrict scores, const float* __restrict mask, float scale,
                     const Dropout& options, Index first_row, float* __restrict log_sum, Index rows,
                     Index columns) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  for (Index r = 0; r < rows; ++r, scores += columns) {
    float top = lowest;
#pragma omp simd reduction(max : top)
    for (Index c = 0; c < columns; ++c) {
      const float s = load(scores[c]) * scale + mask[c];
      top = s > top ? s : top;
    }
    const float base = top == lowest ? 0.0f : top;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Index c = 0; c < columns; ++c) sum += exp(load(scores[c]) * scale + mask[c] - base);
    // A row without keys gives zeros, both here and in the backward pass.
    const float log_total = sum > 0 ? base + std::log(sum) : std::numeric_limits<float>::infinity();
    log_sum[r] = log_total;
    for_decisions(options, first_row + r, columns,
                  [&](Index first, Index count, const float* factor) {
                    for (Index i = 0; i < count; ++i) {
                      const Index c = first + i;
                      const float p = exp(load(scores[c]) * scale + mask[c] - log_total);
                      store(scores[c], p * factor[i]);
                    }
                  });
  }
}

template <class T>
void softmax_dropout_backward(T* __restrict scores, T* __restrict dropped_grad,
                              const float* __restrict mask, float scale, const Dropout& options,
                              Index first_row, const float* __restrict log_sum,
                              const float* __restrict delta, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, scores += columns, dropped_grad += columns) {
    const float log_total = log_sum[r], along = delta[r];
    for_decisions(options, first_row + r, columns,
                  [&](Index first, Index count, const float* factor) {
                    for (Index i = 0; i < count; ++i) {
                      const Index c = first + i;
                      const float p = exp(load(scores[c]) * scale + mask[c] - log_total);
                      const float keep = factor[i];
                      store(scores[c], p * keep);
                      store(dropped_grad[c], p * (load(dropped_grad[c]) * keep - along) * scale);
                    }
                  });
  }
}

template <class T>
void row_dot(const T* __restrict a, const T* __restrict b, float* __restrict out, Index rows,
             Index columns, Index stride) {
  for (Index r = 0; r < rows; ++r, a += stride, b += stride) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Index c = 0; c < columns; ++c) sum += load(a[c]) * load(b[c]);
    out[r] = sum;
  }
}

template <class T>
void column_sum(const T* __restrict x, float* __restrict out, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns) {
    for (Index c = 0; c < columns; ++c) out[c] += load(x[c]);
  }
}

}  // namespace hasten::ops::HASTEN_ISA
