// File: device/cuda/kernels/dropout_norm_kernels.h (internal)
// The kernels of dropout, and of dropout_add_norm and dropout_add_pre_norm with their backward
// passes.
//
// A residual stream may have a type S that differs from T, the type of its sublayers: under
// autocast S is float. Then z is stored in S. The next product reads y, which is stored in T.
#pragma once

#include <cmath>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

template <class T = void>
struct DropoutCall {
  const T* x;
  DropoutDecisions decisions;
  T* y;
  Index rows, columns;
};

// z = dropout(x + bias) + residual and y = norm(z); mean and rstd [rows] of z. A null bias adds
// nothing. A null beta means that the norm divides by the root mean square, which needs no mean.
template <class T = void, class S = T>
struct DropoutAddNormCall {
  const T* x;
  const float* bias;
  const S* residual;
  const float *gamma, *beta;
  float epsilon;
  DropoutDecisions decisions;
  S* z;
  T* y;
  float *mean, *rstd;
  Index rows, columns;
};

// sums [parts, 3 columns]: the gradients of bias, gamma and beta over the rows of each part. The
// mean is null if beta was null in the forward pass; the sums of beta are then 0.
template <class T = void, class S = T>
struct DropoutAddNormBackwardCall {
  const T* dy;
  const S* z;
  const float *mean, *rstd, *gamma;
  DropoutDecisions decisions;
  S* dz;
  T* dx;
  float* sums;
  Index parts, rows, columns;
  // The gradient of z as the residual stream, which dz includes. Null means zeros.
  const S* of_stream = nullptr;
};

template <class T, int kPack, int kPacks>
struct DropoutKernel {
  using Place = RowPlace<kPack, kPacks>;

  DropoutCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, call.columns);
    for_rows(block, call.rows, [&](Index row) {
      const Index start = row * call.columns;
      Pack<T, kPack> in[kPacks];
      for (int p = 0; p < kPacks; ++p)
        if (place.has(p)) in[p] = read_pack<kPack>(call.x + start + place.column(p));
      place.for_factors(call.decisions, row, [&](int p, const float(&factors)[kPack]) {
        float out[kPack];
        for (int i = 0; i < kPack; ++i) out[i] = load(in[p].values[i]) * factors[i];
        write_pack(call.y + start + place.column(p), rounded<T>(out));
      });
    });
  }
};

// The norm subtracts the mean if kCentres, and otherwise only divides by the root mean square.
template <class T, class S, bool kCentres, int kPack, int kPacks>
struct DropoutAddNormKernel {
  using Place = RowPlace<kPack, kPacks>;
  using Row = Pack<S, kPack>[kPacks];

  DropoutAddNormCall<T, S> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, call.columns);
    for_rows(block, call.rows, [&](Index row) {
      Row stored;
      const float sum = write_z(place, row, stored);
      write_y(place, row, stored, moments_of(block, place, stored, sum));
    });
  }

 private:
  struct Moments {
    float mean, inverse;
  };

  // Writes z of a row and keeps it. Returns the sum of this thread's numbers before rounding.
  HASTEN_GPU_CODE float write_z(const Place& place, Index row, Row& stored) const {
    const Index start = row * call.columns;
    Pack<T, kPack> in[kPacks];
    Row more;
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      in[p] = read_pack<kPack>(call.x + start + place.column(p));
      more[p] = read_pack<kPack>(call.residual + start + place.column(p));
    }
    float sum = 0;
    place.for_factors(call.decisions, row, [&](int p, const float(&factors)[kPack]) {
      float out[kPack], added[kPack] = {};
      if (call.bias != nullptr) load_pack(call.bias + place.column(p), added);
      for (int i = 0; i < kPack; ++i) {
        out[i] = (load(in[p].values[i]) + added[i]) * factors[i] + load(more[p].values[i]);
        sum += out[i];
      }
      stored[p] = rounded<S>(out);
      write_pack(call.z + start + place.column(p), stored[p]);
    });
    return sum;
  }

  template <class Block>
  HASTEN_GPU_CODE Moments moments_of(const Block& block, const Place& place, const Row& stored,
                                     float sum) const {
    float centre[1] = {0};
    if constexpr (kCentres) {
      centre[0] = sum;
      block.sum(centre);
      centre[0] /= static_cast<float>(call.columns);
    }
    // As on the CPU, a second pass over the stored row corrects the mean and gives the variance.
    float sums[2] = {};  // of the differences from the centre, and of their squares
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      for (int i = 0; i < kPack; ++i) {
        const float d = load(stored[p].values[i]) - centre[0];
        sums[0] += d;
        sums[1] += d * d;
      }
    }
    block.sum(sums);
    const float shift = kCentres ? sums[0] / static_cast<float>(call.columns) : 0.0f;
    const float variance = (sums[1] - sums[0] * shift) / static_cast<float>(call.columns);
    return {centre[0] + shift, 1.0f / sqrtf((variance < 0 ? 0.0f : variance) + call.epsilon)};
  }

  HASTEN_GPU_CODE void write_y(const Place& place, Index row, const Row& stored,
                               const Moments& moments) const {
    if (place.thread == 0) {
      if constexpr (kCentres) call.mean[row] = moments.mean;
      call.rstd[row] = moments.inverse;
    }
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      float out[kPack], scales[kPack], shifts[kPack] = {};
      load_pack(call.gamma + place.column(p), scales);
      if constexpr (kCentres) load_pack(call.beta + place.column(p), shifts);
      for (int i = 0; i < kPack; ++i)
        out[i] =
            (load(stored[p].values[i]) - moments.mean) * moments.inverse * scales[i] + shifts[i];
      write_pack(call.y + row * call.columns + place.column(p), rounded<T>(out));
    }
  }
};

// Writes dz and dx, and to sums [call.parts, 3 call.columns] the gradients of bias, gamma and beta
// over the call.rows of each part, side by side. The grid has a block for each part, which reads
// kRows call.rows at once. If kAddsStreamGradient, dz includes the gradient of the stream.
template <class T, class S, bool kCentres, bool kAddsStreamGradient, int kPack, int kPacks>
struct DropoutAddNormBackwardKernel {
  using Place = RowPlace<kPack, kPacks>;
  static constexpr int kRows = kPack * kPacks > 8 ? 1 : kAddsStreamGradient ? 2 : 4;

  DropoutAddNormBackwardCall<T, S> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, call.columns);
    float scales[kPacks][kPack];
    for (int p = 0; p < kPacks; ++p)
      if (place.has(p)) load_pack(call.gamma + place.column(p), scales[p]);
    Gradients gradients;
    const Index last = call.rows * (block.index() + 1) / call.parts;
    for (Index row = call.rows * block.index() / call.parts; row < last; row += kRows) {
      const int count = last - row < kRows ? static_cast<int>(last - row) : kRows;
      Row of_rows[kRows];
      float means[2 * kRows] = {};  // of gamma dy xhat, and of gamma dy
      for (int r = 0; r < kRows; ++r)
        if (r < count) read(place, row + r, of_rows[r]);
      for (int r = 0; r < kRows; ++r)
        if (r < count) add_to_means(place, of_rows[r], scales, means + 2 * r);
      block.sum(means);
      for (int r = 0; r < kRows; ++r)
        if (r < count) write_row(place, row + r, of_rows[r], scales, means + 2 * r, gradients);
    }
    write_sums(place, gradients, call.sums + block.index() * 3 * call.columns);
  }

 private:
  struct Row {
    Pack<T, kPack> gradient[kPacks];
    Pack<S, kPack> stored[kPacks], of_stream[kAddsStreamGradient ? kPacks : 1];
    float mean, inverse;
  };
  struct Gradients {
    float bias[kPacks][kPack] = {}, gamma[kPacks][kPack] = {}, beta[kPacks][kPack] = {};
  };

  HASTEN_GPU_CODE void read(const Place& place, Index row, Row& to) const {
    to.mean = kCentres ? call.mean[row] : 0.0f;
    to.inverse = call.rstd[row];
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      const Index at = row * call.columns + place.column(p);
      to.gradient[p] = read_pack<kPack>(call.dy + at);
      to.stored[p] = read_pack<kPack>(call.z + at);
      if constexpr (kAddsStreamGradient) {
        if (call.of_stream != nullptr) {
          to.of_stream[p] = read_pack<kPack>(call.of_stream + at);
        } else {
          to.of_stream[p] = {};
        }
      }
    }
  }

  static HASTEN_GPU_CODE float xhat(const Row& row, int pack, int i) {
    return (load(row.stored[pack].values[i]) - row.mean) * row.inverse;
  }

  HASTEN_GPU_CODE void add_to_means(const Place& place, const Row& row,
                                    const float (&scales)[kPacks][kPack], float* means) const {
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      for (int i = 0; i < kPack; ++i) {
        const float g = load(row.gradient[p].values[i]) * scales[p][i];
        means[0] += g * xhat(row, p, i);
        means[1] += g;
      }
    }
  }

  HASTEN_GPU_CODE void write_row(const Place& place, Index index, const Row& row,
                                 const float (&scales)[kPacks][kPack], const float* means,
                                 Gradients& gradients) const {
    const float dot = means[0] / static_cast<float>(call.columns),
                sum = kCentres ? means[1] / static_cast<float>(call.columns) : 0.0f;
    place.for_factors(call.decisions, index, [&](int p, const float(&factors)[kPack]) {
      float of_z[kPack], of_x[kPack];
      for (int i = 0; i < kPack; ++i) {
        const float d = load(row.gradient[p].values[i]), normed = xhat(row, p, i);
        of_z[i] = (d * scales[p][i] - sum - normed * dot) * row.inverse;
        if constexpr (kAddsStreamGradient) of_z[i] += load(row.of_stream[p].values[i]);
        of_x[i] = of_z[i] * factors[i];
        gradients.bias[p][i] += of_x[i];
        gradients.gamma[p][i] += d * normed;
        if constexpr (kCentres) gradients.beta[p][i] += d;
      }
      const Index at = index * call.columns + place.column(p);
      write_pack(call.dz + at, rounded<S>(of_z));
      write_pack(call.dx + at, rounded<T>(of_x));
    });
  }

  HASTEN_GPU_CODE void write_sums(const Place& place, const Gradients& gradients,
                                  float* out) const {
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      for (int i = 0; i < kPack; ++i) {
        const int column = place.column(p) + i;
        out[column] = gradients.bias[p][i];
        out[call.columns + column] = gradients.gamma[p][i];
        out[2 * call.columns + column] = gradients.beta[p][i];
      }
    }
  }
};

}  // namespace hasten::gpu
