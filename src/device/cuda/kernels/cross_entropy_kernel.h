// File: device/cuda/kernels/cross_entropy_kernel.h (internal)
// The kernel of the loss of linear_cross_entropy.
#pragma once

#include <cmath>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// Computes the cross entropy of each row of logits and, if `differentiates` is true, replaces the
// logits by the gradient of the sum of the losses. Rows have `stride` numbers, of which the first
// `columns` are logits; the others get a gradient of 0. A row whose label is `ignored` has the loss
// 0.
template <class T = void>
struct CrossEntropyCall {
  T* logits;
  const Index* labels;
  float* losses;
  Index ignored;
  float smoothing;
  bool differentiates;
  Index rows, columns, stride;
};

template <class T, int kPack>
struct CrossEntropyKernel {
  CrossEntropyCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, call.rows, [&](Index row) {
      T* const x = call.logits + row * call.stride;
      const Index label = call.labels[row];
      const bool counts = label != call.ignored, holds = label >= 0 && label < call.columns;
      block.check_id(!counts || holds);
      if (!counts || !holds) {
        if (block.thread() == 0) call.losses[row] = 0;
        if (call.differentiates) write_zeros(block, x);
        return;
      }
      Sums sums;
      const bool adds_logits = call.smoothing != 0;
      for (int first = first_of(block), stride = static_cast<int>(call.stride); first < stride;
           first += kDepth * step_of(block)) {
        float numbers[kDepth][kPack];
        load_logits(x, first, step_of(block), numbers);
        sums.add_exponentials(numbers);
        if (adds_logits) sums.add_logits(numbers);
      }
      const float top = block.maximum(sums.top);
      float totals[2] = {sums.exponentials * exponential(sums.top - top), sums.logits};
      const float of_label = load(x[label]);  // before block.sum(), after which it is overwritten
      block.sum(totals);
      const float log_sum = logf(totals[0]), mean = totals[1] / static_cast<float>(call.columns);
      if (block.thread() == 0)
        call.losses[row] =
            log_sum - (1.0f - call.smoothing) * (of_label - top) - call.smoothing * (mean - top);
      if (call.differentiates)
        write_gradient(block, x, top + log_sum, call.smoothing / static_cast<float>(call.columns),
                       label);
    });
  }

 private:
  // A thread reads a group of this many packs before it uses the first of them.
  static constexpr int kDepth = 4;

  // The largest number so far, the sum of exp(number - largest), and the sum of the numbers.
  struct Sums {
    float top = -kInfinity, exponentials = 0, logits = 0;

    // Scales the sum so far once for all packs.
    HASTEN_GPU_CODE void add_exponentials(const float (&numbers)[kDepth][kPack]) {
      float maximum = top;
      for (const auto& pack : numbers)
        for (const float x : pack) maximum = fmaxf(maximum, x);
      const float base = maximum == -kInfinity ? 0.0f : maximum;  // only padding so far
      exponentials *= exponential(top - base);
      top = maximum;
      // Short chains of sums, because each sum waits for the one before it.
      for (int i = 0; i < kPack; ++i) {
        float sum = 0;
        for (const auto& pack : numbers) sum += exponential(pack[i] - base);
        exponentials += sum;
      }
    }

    HASTEN_GPU_CODE void add_logits(const float (&numbers)[kDepth][kPack]) {
      for (const auto& pack : numbers)
        for (const float x : pack) logits += x == -kInfinity ? 0.0f : x;
    }
  };

  // The first column of a thread's first pack, and the number of columns between its packs.
  template <class Block>
  static HASTEN_GPU_CODE int first_of(const Block& block) {
    return block.thread() * kPack;
  }
  template <class Block>
  static HASTEN_GPU_CODE int step_of(const Block& block) {
    return block.threads() * kPack;
  }

  // Padding, and columns of a group beyond the end of the row, count as -infinity.
  HASTEN_GPU_CODE void load_logits(const T* x, int first, int step,
                                   float (&numbers)[kDepth][kPack]) const {
    const int columns = static_cast<int>(call.columns), stride = static_cast<int>(call.stride);
    Pack<T, kPack> packs[kDepth] = {};
    for (int d = 0; d < kDepth; ++d)
      if (first + d * step < stride) packs[d] = read_pack<kPack>(x + first + d * step);
    for (int d = 0; d < kDepth; ++d) {
      const int column = first + d * step;
      for (int i = 0; i < kPack; ++i) numbers[d][i] = load(packs[d].values[i]);
      if (column + kPack <= columns) continue;
      for (int i = 0; i < kPack; ++i)
        if (column + i >= columns) numbers[d][i] = -kInfinity;
    }
  }

  template <class Block>
  HASTEN_GPU_CODE void write_zeros(const Block& block, T* x) const {
    const float zeros[kPack] = {};
    for_packs<kPack>(block, call.stride,
                     [&](Index column) { write_streaming(x + column, rounded<T>(zeros)); });
  }

  // Writes exp(x - base) - even, minus (1 - call.smoothing) for the label. It goes backwards,
  // because the cache still has the columns that were read last.
  template <class Block>
  HASTEN_GPU_CODE void write_gradient(const Block& block, T* x, float base, float even,
                                      Index label) const {
    const int columns = static_cast<int>(call.columns), stride = static_cast<int>(call.stride),
              step = step_of(block), first = first_of(block);
    for (int group = first + (stride - 1 - first) / (kDepth * step) * kDepth * step; group >= first;
         group -= kDepth * step) {
      float numbers[kDepth][kPack];
      load_logits(x, group, step, numbers);
      for (int d = 0; d < kDepth; ++d) {
        const int column = group + d * step;
        if (column >= stride) break;
        for (float& each : numbers[d]) each = exponential(each - base) - even;
        if (column <= label && label < column + kPack)
          for (int i = 0; i < kPack; ++i)
            if (column + i == label) numbers[d][i] -= 1.0f - call.smoothing;
        if (column + kPack > columns)
          for (int i = 0; i < kPack; ++i)
            if (column + i >= columns) numbers[d][i] = 0;
        write_streaming(x + column, rounded<T>(numbers[d]));
      }
    }
  }
};

}  // namespace hasten::gpu
