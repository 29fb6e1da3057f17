// File: device/cuda/kernels/gelu_kernels.h (internal)
// The kernels of bias_gelu and bias_tanh_gelu and of their backward passes.
#pragma once

#include <cmath>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// The cumulative normal distribution at u, and its density at u.
struct Normal {
  float cdf, density;
};
// Accurate to 1e-7. Computes erfc by formula 7.1.26 of Abramowitz and Stegun, which needs the same
// exponential as the density.
HASTEN_GPU_CODE Normal normal_at(float u) {
  const float exponential = exp2f(-0.721347520f * u * u);
  const float t = reciprocal(1.0f + 0.231641888f * fabsf(u));
  const float series =
      t * (0.127414796f +
           t * (-0.142248368f + t * (0.710706871f + t * (-0.726576014f + t * 0.530702715f))));
  const float tail = series * exponential;
  return {u < 0 ? tail : 1.0f - tail, 0.398942280f * exponential};
}

// GELU and its derivative at u.
struct ExactGelu {
  static HASTEN_GPU_CODE float value(float u) { return u * normal_at(u).cdf; }
  static HASTEN_GPU_CODE float slope(float u) {
    const Normal normal = normal_at(u);
    return normal.cdf + u * normal.density;
  }
};

// The approximation u (1 + tanh z) / 2 = u / (1 + e^(-2 z)) with z = sqrt(2 / pi) (u + 0.044715
// u^3).
struct TanhGelu {
  static HASTEN_GPU_CODE float value(float u) { return u * cdf(u); }
  static HASTEN_GPU_CODE float slope(float u) {
    const float p = cdf(u);
    return p + u * p * (1.0f - p) * kTwice * (1.0f + 3.0f * kCubic * u * u);
  }

 private:
  static constexpr float kTwice = 1.59576912f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)

  // Approximates the cumulative normal distribution at u, the factor by which u is multiplied.
  static HASTEN_GPU_CODE float cdf(float u) {
    return reciprocal(1.0f + exponential(-kTwice * u * (1.0f + kCubic * u * u)));
  }
};

// x and y [rows, columns], bias [columns].
template <class T = void>
struct BiasGeluCall {
  const T* x;
  const float* bias;
  T* y;
  Index rows, columns;
};

// sums [parts, columns]
template <class T = void>
struct BiasGeluBackwardCall {
  const T *dy, *x;
  const float* bias;
  T* dx;
  float* sums;
  Index parts, rows, columns;
};

template <class T, int kPack, class Gelu>
struct BiasGeluKernel {
  BiasGeluCall<T> call;
  Index parts;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    constexpr int kDepth = 4;
    const TilePlace<kPack> place(block, call.rows, call.columns, parts);
    if (place.column >= call.columns) return;
    float added[kPack];
    load_pack(call.bias + place.column, added);
    place.template for_groups<kDepth>([&](Index row, int count) {
      const Index at = row * call.columns + place.column, step = kTileSlices * call.columns;
      Pack<T, kPack> in[kDepth];
      for (int r = 0; r < kDepth; ++r)
        if (r < count) in[r] = read_pack<kPack>(call.x + at + r * step);
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        float out[kPack];
        for (int i = 0; i < kPack; ++i) out[i] = Gelu::value(load(in[r].values[i]) + added[i]);
        write_pack(call.y + at + r * step, rounded<T>(out));
      }
    });
  }
};

// Writes dx, and to sums [parts, columns] the sums of dx over the rows of each part.
template <class T, int kPack, class Gelu>
struct BiasGeluBackwardKernel {
  BiasGeluBackwardCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    constexpr int kDepth = 4;
    const TilePlace<kPack> place(block, call.rows, call.columns, call.parts);
    float added[kPack] = {}, sum[kPack] = {};
    if (place.column < call.columns) load_pack(call.bias + place.column, added);
    place.template for_groups<kDepth>([&](Index row, int count) {
      const Index at = row * call.columns + place.column, step = kTileSlices * call.columns;
      Pack<T, kPack> in[kDepth], gradient[kDepth];
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        in[r] = read_pack<kPack>(call.x + at + r * step);
        gradient[r] = read_pack<kPack>(call.dy + at + r * step);
      }
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        float out[kPack];
        for (int i = 0; i < kPack; ++i) {
          out[i] = load(gradient[r].values[i]) * Gelu::slope(load(in[r].values[i]) + added[i]);
          sum[i] += out[i];
        }
        write_pack(call.dx + at + r * step, rounded<T>(out));
      }
    });
    place.write(block, sum, call.sums + place.part * call.columns, call.columns);
  }
};

}  // namespace hasten::gpu
