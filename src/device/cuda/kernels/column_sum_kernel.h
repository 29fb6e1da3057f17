// File: device/cuda/kernels/column_sum_kernel.h (internal)
// The kernel that sums the columns of a matrix, for example for the gradient of a bias.
#pragma once

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// x [rows, columns]; writes to sums [parts, columns] the sums over the rows of each part.
template <class T = void>
struct ColumnSumCall {
  const T* x;
  float* sums;
  Index parts, rows, columns;
};

template <class T, int kPack>
struct ColumnSumKernel {
  ColumnSumCall<T> call;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    constexpr int kDepth = 4;
    const TilePlace<kPack> place(block, call.rows, call.columns, call.parts);
    float sum[kPack] = {};
    place.template for_groups<kDepth>([&](Index row, int count) {
      const Index at = row * call.columns + place.column, step = kTileSlices * call.columns;
      Pack<T, kPack> in[kDepth];
      for (int r = 0; r < kDepth; ++r)
        if (r < count) in[r] = read_pack<kPack>(call.x + at + r * step);
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        for (int i = 0; i < kPack; ++i) sum[i] += load(in[r].values[i]);
      }
    });
    place.write(block, sum, call.sums + place.part * call.columns, call.columns);
  }
};

}  // namespace hasten::gpu
