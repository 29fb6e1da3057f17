// File: ops/kernels/gelu.h (internal)
// Bias and GELU in one pass, and their backward pass, which also sums the gradient of the bias.
#pragma once

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

template <class T>
void bias_gelu(const T* __restrict x, const float* __restrict bias, T* __restrict y, Index rows,
               Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns, y += columns) {
    for (Index c = 0; c < columns; ++c) {
      const float u = load(x[c]) + bias[c];
      store(y[c], 0.5f * u * (1.0f + erf(u * 0.707106781f)));
    }
  }
}

template <class T>
void bias_gelu_backward(const T* __restrict dy, const T* __restrict x, const float* __restrict bias,
                        T* __restrict dx, float* __restrict bias_grad, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns, dy += columns, dx += columns) {
    for (Index c = 0; c < columns; ++c) {
      const float u = load(x[c]) + bias[c];
      const float cdf = 0.5f * (1.0f + erf(u * 0.707106781f));
      const float pdf = 0.398942280f * exp(-0.5f * u * u);
      const float d = load(dy[c]) * (cdf + u * pdf);
      store(dx[c], d);
      bias_grad[c] += d;
    }
  }
}

}  // namespace hasten::ops::HASTEN_ISA
