// File: device/cuda/kernels/embedding_sum_kernel.h (internal)
// The kernel of embedding_sum.
#pragma once

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// out[row] = word[id] + position[position id] + type[type id]; a null table adds nothing, and null
// ids are 0, 1, ... for positions and 0 for types.
struct EmbeddingSumKernel {
  struct Table {
    const float* rows;
    const Index* ids;
    Index size;
  };
  Table word, position, type;
  float* out;
  Index rows, length, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, rows, [&](Index row) {
      const float* const w = row_of(block, word, row, 0);
      const float* const p = row_of(block, position, row, row % length);
      const float* const t = row_of(block, type, row, 0);
      for_packs<1>(block, columns, [&](Index column) {
        float sum = w[column];
        if (t != nullptr) sum += t[column];
        if (p != nullptr) sum += p[column];
        out[row * columns + column] = sum;
      });
    });
  }

 private:
  template <class Block>
  HASTEN_GPU_CODE const float* row_of(const Block& block, const Table& table, Index row,
                                      Index usual) const {
    if (table.rows == nullptr) return nullptr;
    const Index id = table.ids != nullptr ? table.ids[row] : usual;
    block.check_id(id >= 0 && id < table.size);
    return table.rows + id * columns;
  }
};

}  // namespace hasten::gpu
