// File: ops/kernels/norm.h (internal)
// Bias, dropout, residual and layer normalization in one pass over the rows, and the backward pass
// of all four.
#pragma once

#include "ops/kernels/philox.h"

namespace hasten::ops::HASTEN_ISA {

template <class T>
void dropout(const T* __restrict x, const Dropout& options, Index first_row, T* __restrict y,
             Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns, y += columns) {
    for_decisions(options, first_row + r, columns,
                  [&](Index first, Index count, const float* factor) {
                    for (Index i = 0; i < count; ++i)
                      store(y[first + i], load(x[first + i]) * factor[i]);
                  });
  }
}

template <class T>
void dropout_add_norm(const T* __restrict x, const float* __restrict bias,
                      const T* __restrict residual, const float* __restrict gamma,
                      const float* __restrict beta, float epsilon, const Dropout& options,
                      Index first_row, T* __restrict z, T* __restrict y, float* __restrict mean,
                      float* __restrict rstd, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns, z += columns, y += columns) {
    float sum = 0;
    for_decisions(options, first_row + r, columns,
                  [&](Index first, Index count, const float* factor) {
                    float part = 0;
#pragma omp simd reduction(+ : part)
                    for (Index i = 0; i < count; ++i) {
                      const Index c = first + i;
                      const float value = (load(x[c]) + bias[c]) * factor[i] + load(residual[c]);
                      store(z[c], value);
                      part += value;
                    }
                    sum += part;
                  });
    residual += columns;
    // The variance takes a second pass, because the one-pass form suffers from cancellation and the
    // row is in cache. The pass also corrects the mean by the mean of the differences from it. The
    // first sum has rounding errors, and in bfloat16 it adds values before they are rounded to z.
    // In a nearly constant row, the division by the standard deviation would amplify either error.
    const float first_mean = sum / static_cast<float>(columns);
    float difference_sum = 0, square = 0;
#pragma omp simd reduction(+ : difference_sum, square)
    for (Index c = 0; c < columns; ++c) {
      const float d = load(z[c]) - first_mean;
      difference_sum += d;
      square += d * d;
    }
    const float shift = difference_sum / static_cast<float>(columns);
    const float m = first_mean + shift;
    const float variance = (square - difference_sum * shift) / static_cast<float>(columns);
    const float inverse = 1.0f / std::sqrt((variance < 0 ? 0.0f : variance) + epsilon);
    mean[r] = m;
    rstd[r] = inverse;
    for (Index c = 0; c < columns; ++c)
      store(y[c], (load(z[c]) - m) * inverse * gamma[c] + beta[c]);
  }
}

template <class T>
void dropout_add_norm_backward(const T* __restrict dy, const T* __restrict z,
                               const float* __restrict mean, const float* __restrict rstd,
                               const float* __restrict gamma, const Dropout& options,
                               Index first_row, T* __restrict dz, T* __restrict dx,
                               float* __restrict bias_grad, float* __restrict gamma_grad,
                               float* __restrict beta_grad, Index rows, Index columns) {
  const float inverse_columns = 1.0f / static_cast<float>(columns);
  for (Index r = 0; r < rows; ++r, dy += columns, z += columns, dz += columns, dx += columns) {
    const float m = mean[r], inverse = rstd[r];
    float gradient_dot = 0, gradient_sum = 0;  // Sums of gamma dy xhat and of gamma dy.
#pragma omp simd reduction(+ : gradient_dot, gradient_sum)
    for (Index c = 0; c < columns; ++c) {
      const float d = load(dy[c]);
      const float xhat = (load(z[c]) - m) * inverse;
      gamma_grad[c] += d * xhat;
      beta_grad[c] += d;
      const float g = d * gamma[c];
      gradient_dot += g * xhat;
      gradient_sum += g;
    }
    gradient_dot *= inverse_columns;
    gradient_sum *= inverse_columns;
    for_decisions(options, first_row + r, columns,
                  [&](Index first, Index count, const float* factor) {
                    for (Index i = 0; i < count; ++i) {
                      const Index c = first + i;
                      const float xhat = (load(z[c]) - m) * inverse;
                      const float value =
                          (load(dy[c]) * gamma[c] - gradient_sum - xhat * gradient_dot) * inverse;
                      store(dz[c], value);
                      const float kept = value * factor[i];
                      store(dx[c], kept);
                      bias_grad[c] += kept;
                    }
                  });
  }
}

}  // namespace hasten::ops::HASTEN_ISA
