// File: ops/kernels/llama_kernels.h (internal)
// The operations of Llama's layers between matrix products: the root-mean-square norm, the gate,
// and rotary positions.
#pragma once

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

template <class T>
void rms_norm(const T* __restrict x, const float* __restrict gamma, float epsilon, T* __restrict y,
              float* __restrict rstd, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, x += columns, y += columns) {
    float square = 0;
#pragma omp simd reduction(+ : square)
    for (Index c = 0; c < columns; ++c) square += load(x[c]) * load(x[c]);
    const float inverse = 1.0f / std::sqrt(square / static_cast<float>(columns) + epsilon);
    rstd[r] = inverse;
    for (Index c = 0; c < columns; ++c) store(y[c], load(x[c]) * inverse * gamma[c]);
  }
}

template <class T>
void rms_norm_backward(const T* __restrict dy, const T* __restrict x, const float* __restrict rstd,
                       const float* __restrict gamma, T* __restrict dx,
                       float* __restrict gamma_grad, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r, dy += columns, x += columns, dx += columns) {
    const float inverse = rstd[r];
    float dot = 0;  // The sum of gamma dy xhat.
#pragma omp simd reduction(+ : dot)
    for (Index c = 0; c < columns; ++c) {
      const float along = load(dy[c]) * load(x[c]) * inverse;
      gamma_grad[c] += along;
      dot += along * gamma[c];
    }
    const float mean = dot / static_cast<float>(columns);
    for (Index c = 0; c < columns; ++c)
      store(dx[c], (load(dy[c]) * gamma[c] - load(x[c]) * inverse * mean) * inverse);
  }
}

HASTEN_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

template <class T>
void silu_multiply(const T* __restrict gate, const T* __restrict up, T* __restrict y, Index count) {
  for (Index i = 0; i < count; ++i) {
    const float g = load(gate[i]);
    store(y[i], g * sigmoid(g) * load(up[i]));
  }
}

template <class T>
void silu_multiply_backward(const T* __restrict dy, const T* __restrict gate,
                            const T* __restrict up, T* __restrict dgate, T* __restrict dup,
                            Index count) {
  for (Index i = 0; i < count; ++i) {
    const float d = load(dy[i]), g = load(gate[i]), s = sigmoid(g);
    store(dup[i], d * g * s);
    store(dgate[i], d * load(up[i]) * s * (1.0f + g * (1.0f - s)));
  }
}

template <class T>
void rotate(const T* __restrict x, const float* __restrict cosines, const float* __restrict sines,
            float direction, T* __restrict y, Index heads, Index half) {
  for (Index h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
    for (Index i = 0; i < half; ++i) {
      const float first = load(x[i]), second = load(x[half + i]);
      const float sine = sines[i] * direction;
      store(y[i], first * cosines[i] - second * sine);
      store(y[half + i], second * cosines[i] + first * sine);
    }
  }
}

}  // namespace hasten::ops::HASTEN_ISA
