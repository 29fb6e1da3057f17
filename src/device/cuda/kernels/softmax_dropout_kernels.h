// File: device/cuda/kernels/softmax_dropout_kernels.h (internal)
// The kernels of the softmax and the dropout of attention, forward and backward.
#pragma once

#include <cmath>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// The products of queries and keys, and what is added to them before the softmax. Each query of
// each head of each batch entry has a row of `keys` products. Row numbers count the queries of a
// head fastest, then the heads, then the batch entries.
template <class T = void>
struct Scores {
  const T* products;
  float scale;        // multiplies the products
  const float* mask;  // [batch, keys], 0 or -infinity; null masks nothing
  bool is_causal;     // a query attends to no later key; the queries are the last of the keys
  Index heads, queries, keys;
};

// out = dropout(softmax(scale products + mask)); log_sum [rows] is the log of each row's sum of
// exponentials. A row without a key gives zeros.
template <class T = void>
struct SoftmaxDropoutCall {
  Scores<T> scores;
  DropoutDecisions decisions;
  T* out;
  float* log_sum;
  Index rows;
};

// Computes the gradient of the products from the gradient of `out`.
template <class T = void>
struct SoftmaxDropoutBackwardCall {
  Scores<T> scores;
  DropoutDecisions decisions;
  const T* gradient;
  const float* log_sum;
  T* of_products;
  Index rows;
};

// The scores of a row in the registers of a block.
template <class T, int kPack, int kPacks>
struct RegisterScores {
  using Place = RowPlace<kPack, kPacks>;

  float values[kPacks][kPack];

  HASTEN_GPU_CODE RegisterScores(const Scores<T>& scores, const Place& place, Index row) {
    const Index last =
        scores.is_causal ? row % scores.queries + scores.keys - scores.queries : scores.keys;
    const T* const products = scores.products + row * scores.keys;
    const float* const mask =
        scores.mask == nullptr ? nullptr
                               : scores.mask + row / (scores.queries * scores.heads) * scores.keys;
    for (int p = 0; p < kPacks; ++p) {
      const int column = place.column(p);
      // Scores of keys to which the query does not attend are not read.
      if (!place.has(p) || column > last) {
        for (float& each : values[p]) each = -kInfinity;
        continue;
      }
      float added[kPack] = {};
      load_pack(products + column, values[p]);
      if (mask != nullptr) load_pack(mask + column, added);
      for (int i = 0; i < kPack; ++i)
        values[p][i] = column + i > last ? -kInfinity : values[p][i] * scores.scale + added[i];
    }
  }
};

template <class T, int kPack, int kPacks>
struct SoftmaxDropoutKernel {
  using Place = RowPlace<kPack, kPacks>;

  SoftmaxDropoutCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, call.scores.keys);
    for_rows(block, call.rows, [&](Index row) {
      const RegisterScores<T, kPack, kPacks> register_scores(call.scores, place, row);
      float top = -kInfinity;
      for (const auto& pack : register_scores.values)
        for (const float each : pack) top = each > top ? each : top;
      top = block.maximum(top);
      const float base = top == -kInfinity ? 0.0f : top;
      float sum[1] = {};
      for (const auto& pack : register_scores.values)
        for (const float each : pack) sum[0] += exponential(each - base);
      block.sum(sum);
      const float log_sum = sum[0] > 0 ? base + logf(sum[0]) : kInfinity;
      if (place.thread == 0) call.log_sum[row] = log_sum;
      place.for_factors(call.decisions, row, [&](int p, const float(&factors)[kPack]) {
        float out[kPack];
        for (int i = 0; i < kPack; ++i)
          out[i] = exponential(register_scores.values[p][i] - log_sum) * factors[i];
        write_pack(call.out + row * call.scores.keys + place.column(p), rounded<T>(out));
      });
    });
  }
};

// With p = softmax and d = the gradient of p, the gradient of a score is p (d - sum of p d).
template <class T, int kPack, int kPacks>
struct SoftmaxDropoutBackwardKernel {
  using Place = RowPlace<kPack, kPacks>;

  SoftmaxDropoutBackwardCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, call.scores.keys);
    for_rows(block, call.rows, [&](Index row) {
      const Index start = row * call.scores.keys;
      Pack<T, kPack> in[kPacks];
      for (int p = 0; p < kPacks; ++p)
        if (place.has(p)) in[p] = read_pack<kPack>(call.gradient + start + place.column(p));
      RegisterScores<T, kPack, kPacks> register_scores(call.scores, place, row);
      const float log_sum = call.log_sum[row];
      float gradients[kPacks][kPack], dot[1] = {};
      place.for_factors(call.decisions, row, [&](int p, const float(&factors)[kPack]) {
        for (int i = 0; i < kPack; ++i) {
          register_scores.values[p][i] = exponential(register_scores.values[p][i] - log_sum);
          gradients[p][i] = load(in[p].values[i]) * factors[i];
          dot[0] += register_scores.values[p][i] * gradients[p][i];
        }
      });
      block.sum(dot);
      for (int p = 0; p < kPacks; ++p) {
        if (!place.has(p)) continue;
        float out[kPack];
        for (int i = 0; i < kPack; ++i)
          out[i] = register_scores.values[p][i] * (gradients[p][i] - dot[0]) * call.scores.scale;
        write_pack(call.of_products + start + place.column(p), rounded<T>(out));
      }
    });
  }
};

}  // namespace hasten::gpu
