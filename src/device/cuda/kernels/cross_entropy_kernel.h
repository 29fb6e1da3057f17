// File: device/cuda/kernels/cross_entropy_kernel.h (internal)
// The kernel of the loss of linear_cross_entropy.
#pragma once

#include <cmath>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// The cross entropy of each row of logits and, if it differentiates, the gradient of its sum in the place
// of the logits. Rows have `stride` numbers, of which the first `columns` are logits; the others get a
// gradient of 0. A row whose label is `ignored` has the loss 0.
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
      for_packs<kPack>(block, call.stride, [&](Index column) {
        float numbers[kPack];
        load_logits(x, column, numbers);
        sums.add(numbers);
      });
      const float top = block.most(sums.top);
      float totals[2] = {sums.exponentials * exponential(sums.top - top), sums.logits};
      const float of_label = load(x[label]);  // before the sum, after which it is overwritten
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
  // The largest number so far, the sum of exp(number - largest), and the sum of the numbers.
  struct Sums {
    float top = -kInfinity, exponentials = 0, logits = 0;

    HASTEN_GPU_CODE void add(const float (&numbers)[kPack]) {
      float most = top;
      for (const float x : numbers) most = x > most ? x : most;
      if (most == -kInfinity) return;  // only padding so far
      exponentials *= exponential(top - most);
      top = most;
      for (const float x : numbers) {
        exponentials += exponential(x - top);
        logits += x == -kInfinity ? 0.0f : x;
      }
    }
  };

  // The padding counts as -infinity.
  HASTEN_GPU_CODE void load_logits(const T* x, Index column, float (&numbers)[kPack]) const {
    load_pack(x + column, numbers);
    for (int i = 0; i < kPack; ++i)
      if (column + i >= call.columns) numbers[i] = -kInfinity;
  }

  template <class Block>
  HASTEN_GPU_CODE void write_zeros(const Block& block, T* x) const {
    const float zeros[kPack] = {};
    for_packs<kPack>(block, call.stride,
                     [&](Index column) { write_pack(x + column, rounded<T>(zeros)); });
  }

  // Writes exp(x - base) - even, less (1 - call.smoothing) for the label.
  template <class Block>
  HASTEN_GPU_CODE void write_gradient(const Block& block, T* x, float base, float even,
                                      Index label) const {
    for_packs<kPack>(block, call.stride, [&](Index column) {
      float numbers[kPack];
      load_logits(x, column, numbers);
      for (int i = 0; i < kPack; ++i) {
        numbers[i] = column + i < call.columns ? exponential(numbers[i] - base) - even : 0.0f;
        if (column + i == label) numbers[i] -= 1.0f - call.smoothing;
      }
      write_pack(x + column, rounded<T>(numbers));
    });
  }
};

}  // namespace hasten::gpu
