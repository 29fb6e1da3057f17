// File: device/cuda/kernels/row_kernels.h (internal)
// The GPU kernels of hasten's fused operators. Each computes what the CPU kernel of its name does
// (ops/kernels/kernels.h), with sums in float in another order.
//
// A kernel is a value that holds its arguments, and a function of a block of threads. A block has
//   thread(), threads()   this thread's number in the block, and how many there are
//   index(), count()      the block's number in the grid, and how many there are
//   sum(x)                the sum of x over the threads of the block, for all of them
//   shared()              kSharedFloats floats that the threads share
//   sync()                which waits until all threads of the block have called it
//   check_id(holds)       which ends the program if an id is outside of its table
// cuda_block.cuh implements it on a GPU, and the grid emulator of the tests on the host.
#pragma once

#include <cmath>

#include "device/cuda/kernels/decisions.h"

namespace hasten::gpu {

inline constexpr int kMaxThreads = 256;
inline constexpr int kSharedFloats = 3 * kMaxThreads;

// Sums over rows: a block has 32 neighbouring columns, and 8 threads for each of them.
inline constexpr int kTileColumns = 32;
inline constexpr int kTileSlices = kMaxThreads / kTileColumns;

// The exact GELU of u, and its derivative.
HASTEN_GPU_CODE float normal_cdf(float u) { return 0.5f * (1.0f + erff(u * 0.707106781f)); }
HASTEN_GPU_CODE float gelu_slope(float u) {
  return normal_cdf(u) + u * 0.398942280f * expf(-0.5f * u * u);
}

// Calls body(row) for the rows of this block.
template <class Block, class Body>
HASTEN_GPU_CODE void for_rows(const Block& block, Index rows, Body body) {
  for (Index row = block.index(); row < rows; row += block.count()) body(row);
}

// Calls body(column) for each pack of columns of this thread.
template <int kPack, class Block, class Body>
HASTEN_GPU_CODE void for_packs(const Block& block, Index columns, Body body) {
  for (Index column = block.thread() * Index{kPack}; column < columns;
       column += block.threads() * Index{kPack})
    body(column);
}

template <int kPack, class T>
HASTEN_GPU_CODE const Pack<T, kPack>& pack_at(const T* x) {
  return *reinterpret_cast<const Pack<T, kPack>*>(x);
}
template <int kPack, class T>
HASTEN_GPU_CODE void write_pack(T* to, const float (&from)[kPack]) {
  Pack<T, kPack> pack;
  for (int i = 0; i < kPack; ++i) store(pack.values[i], from[i]);
  *reinterpret_cast<Pack<T, kPack>*>(to) = pack;
}

// Writes y, which is a function of x, in the rows of this block. function(numbers, row, column) changes
// a pack of numbers in place, the first of which is in that column.
template <int kPack, class Block, class T, class Function>
HASTEN_GPU_CODE void map_rows(const Block& block, const T* x, T* y, Index rows, Index columns,
                              Function function) {
  for_rows(block, rows, [&](Index row) {
    for_packs<kPack>(block, columns, [&](Index column) {
      const Index at = row * columns + column;
      const Pack<T, kPack> in = pack_at<kPack>(x + at);
      float numbers[kPack];
      for (int i = 0; i < kPack; ++i) numbers[i] = load(in.values[i]);
      function(numbers, row, column);
      write_pack<kPack>(y + at, numbers);
    });
  });
}

// The rows and the column of a thread in a sum over rows. The grid has a block for each part of the
// rows and each tile of columns.
struct TilePlace {
  template <class Block>
  HASTEN_GPU_CODE TilePlace(const Block& block, Index rows, Index columns, Index parts) {
    const Index tiles = (columns + kTileColumns - 1) / kTileColumns;
    part = block.index() / tiles;
    slice = block.thread() / kTileColumns;
    column = block.index() % tiles * kTileColumns + block.thread() % kTileColumns;
    first = rows * part / parts + slice;
    last = column < columns ? rows * (part + 1) / parts : 0;
  }

  // Writes the sum over the block's threads of each column to sums[column].
  template <class Block>
  HASTEN_GPU_CODE void write(const Block& block, float value, float* sums, Index columns) const {
    float* const shared = block.shared();
    shared[block.thread()] = value;
    block.sync();
    if (slice == 0 && column < columns) {
      float sum = 0;
      for (int i = 0; i < kTileSlices; ++i) sum += shared[block.thread() + i * kTileColumns];
      sums[column] = sum;
    }
    block.sync();  // before the next sum overwrites the shared numbers
  }

  Index part, slice, column, first, last;
};

template <class T, int kPack>
struct BiasGeluKernel {
  const T* x;
  const float* bias;
  T* y;
  Index rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    map_rows<kPack>(block, x, y, rows, columns, [&](float(&numbers)[kPack], Index, Index column) {
      for (int i = 0; i < kPack; ++i) {
        const float u = numbers[i] + bias[column + i];
        numbers[i] = u * normal_cdf(u);
      }
    });
  }
};

// Writes dx, and to sums [parts, columns] the sums of dx over the rows of each part.
template <class T>
struct BiasGeluBackwardKernel {
  const T *dy, *x;
  const float* bias;
  T* dx;
  float* sums;
  Index parts, rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const TilePlace place(block, rows, columns, parts);
    float sum = 0;
    for (Index row = place.first; row < place.last; row += kTileSlices) {
      const Index at = row * columns + place.column;
      const float d = load(dy[at]) * gelu_slope(load(x[at]) + bias[place.column]);
      store(dx[at], d);
      sum += d;
    }
    place.write(block, sum, sums + place.part * columns, columns);
  }
};

template <class T, int kPack>
struct DropoutKernel {
  const T* x;
  Decisions decisions;
  T* y;
  Index rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    map_rows<kPack>(block, x, y, rows, columns,
                    [&](float(&numbers)[kPack], Index row, Index column) {
                      float factors[kPack];
                      decisions.factors(row, column, factors);
                      for (int i = 0; i < kPack; ++i) numbers[i] *= factors[i];
                    });
  }
};

template <class T, int kPack>
struct DropoutAddNormKernel {
  const T* x;
  const float* bias;
  const T* residual;
  const float *gamma, *beta;
  float epsilon;
  Decisions decisions;
  T *z, *y;
  float *mean, *rstd;
  Index rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, rows, [&](Index row) {
      const Index start = row * columns;
      const float first_mean = write_z(block, row) / static_cast<float>(columns);
      // As on the CPU, a second pass over the stored row corrects the mean and gives the variance.
      float difference = 0, square = 0;
      for_packs<kPack>(block, columns, [&](Index column) {
        const Pack<T, kPack> in = pack_at<kPack>(z + start + column);
        for (int i = 0; i < kPack; ++i) {
          const float d = load(in.values[i]) - first_mean;
          difference += d;
          square += d * d;
        }
      });
      difference = block.sum(difference);
      square = block.sum(square);
      const float shift = difference / static_cast<float>(columns);
      const float variance = (square - difference * shift) / static_cast<float>(columns);
      const float m = first_mean + shift,
                  inverse = 1.0f / sqrtf((variance < 0 ? 0.0f : variance) + epsilon);
      if (block.thread() == 0) {
        mean[row] = m;
        rstd[row] = inverse;
      }
      for_packs<kPack>(block, columns, [&](Index column) {
        const Pack<T, kPack> in = pack_at<kPack>(z + start + column);
        float out[kPack];
        for (int i = 0; i < kPack; ++i)
          out[i] = (load(in.values[i]) - m) * inverse * gamma[column + i] + beta[column + i];
        write_pack<kPack>(y + start + column, out);
      });
    });
  }

 private:
  // Writes z of a row and returns its sum before rounding. Each thread reads only what it has
  // written itself.
  template <class Block>
  HASTEN_GPU_CODE float write_z(const Block& block, Index row) const {
    float sum = 0;
    for_packs<kPack>(block, columns, [&](Index column) {
      const Index at = row * columns + column;
      const Pack<T, kPack> in = pack_at<kPack>(x + at), more = pack_at<kPack>(residual + at);
      float out[kPack];
      decisions.factors(row, column, out);
      for (int i = 0; i < kPack; ++i) {
        out[i] = (load(in.values[i]) + bias[column + i]) * out[i] + load(more.values[i]);
        sum += out[i];
      }
      write_pack<kPack>(z + at, out);
    });
    return block.sum(sum);
  }
};

// Writes dz and dx.
template <class T, int kPack>
struct DropoutAddNormBackwardKernel {
  const T *dy, *z;
  const float *mean, *rstd, *gamma;
  Decisions decisions;
  T *dz, *dx;
  Index rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, rows, [&](Index row) {
      const Index start = row * columns;
      const float m = mean[row], inverse = rstd[row];
      float dot = 0, sum = 0;  // of gamma dy xhat, and of gamma dy
      for_packs<kPack>(block, columns, [&](Index column) {
        const Pack<T, kPack> gradient = pack_at<kPack>(dy + start + column),
                             stored = pack_at<kPack>(z + start + column);
        for (int i = 0; i < kPack; ++i) {
          const float g = load(gradient.values[i]) * gamma[column + i];
          dot += g * (load(stored.values[i]) - m) * inverse;
          sum += g;
        }
      });
      dot = block.sum(dot) / static_cast<float>(columns);
      sum = block.sum(sum) / static_cast<float>(columns);
      for_packs<kPack>(block, columns, [&](Index column) {
        const Pack<T, kPack> gradient = pack_at<kPack>(dy + start + column),
                             stored = pack_at<kPack>(z + start + column);
        float out[kPack], factors[kPack];
        decisions.factors(row, column, factors);
        for (int i = 0; i < kPack; ++i) {
          const float xhat = (load(stored.values[i]) - m) * inverse;
          out[i] = (load(gradient.values[i]) * gamma[column + i] - sum - xhat * dot) * inverse;
        }
        write_pack<kPack>(dz + start + column, out);
        for (int i = 0; i < kPack; ++i) out[i] *= factors[i];
        write_pack<kPack>(dx + start + column, out);
      });
    });
  }
};

// Writes to sums [parts, 3 columns] the gradients of bias, gamma and beta over the rows of each
// part, side by side. It runs after the kernel that writes dx.
template <class T>
struct DropoutAddNormSumsKernel {
  const T *dy, *z, *dx;
  const float *mean, *rstd;
  float* sums;
  Index parts, rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const TilePlace place(block, rows, columns, parts);
    float of_bias = 0, of_gamma = 0, of_beta = 0;
    for (Index row = place.first; row < place.last; row += kTileSlices) {
      const Index at = row * columns + place.column;
      const float d = load(dy[at]);
      of_bias += load(dx[at]);
      of_gamma += d * (load(z[at]) - mean[row]) * rstd[row];
      of_beta += d;
    }
    float* const out = sums + place.part * 3 * columns;
    place.write(block, of_bias, out, columns);
    place.write(block, of_gamma, out + columns, columns);
    place.write(block, of_beta, out + 2 * columns, columns);
  }
};

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
