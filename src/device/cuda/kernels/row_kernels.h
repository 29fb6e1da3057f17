// File: device/cuda/kernels/row_kernels.h (internal)
// The GPU kernels of hasten's fused operators. Each computes what the CPU kernel of its name does
// (ops/kernels/kernels.h), with sums in float in another order.
//
// A kernel is a value that holds its arguments, and a function of a block of threads. A block has
//   thread(), threads()   this thread's number in the block, and how many there are
//   index(), count()      the block's number in the grid, and how many there are
//   sum(numbers)          which replaces each of an array's numbers by its sum over the block's threads
//   most(x)               the largest x of the block's threads, for all of them
//   shared()              kSharedFloats floats that the threads share
//   sync()                which waits until all threads of the block have called it
//   check_id(holds)       which ends the program if an id is outside of its table
// cuda_block.cuh implements it on a GPU, and the grid emulator of the tests on the host.
//
// A GPU reads memory at its full rate if each thread has several reads of 16 or 8 bytes under way. So a
// thread reads packs of neighbouring numbers, those of several rows before it uses the first of them.
#pragma once

#include <cmath>
#include <limits>

#include "device/cuda/kernels/decisions.h"

namespace hasten::gpu {

inline constexpr int kMaxThreads = 512;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int kWarp = 32;

// Sums over rows: a block has the columns of a warp's packs, and kTileSlices threads for each of them.
inline constexpr int kTileSlices = 8;
inline constexpr int kTileThreads = kWarp * kTileSlices;
inline constexpr int kMaxPack = 8;
inline constexpr int kSharedFloats = kTileThreads * kMaxPack;

// The normal distribution's share below u, and its density at u.
struct Normal {
  float below, density;
};
// Within 1e-7. erfc by formula 7.1.26 of Abramowitz and Stegun, whose exponential is the density's.
HASTEN_GPU_CODE Normal normal_at(float u) {
  const float exponential = exp2f(-0.721347520f * u * u);
  const float t = reciprocal(1.0f + 0.231641888f * fabsf(u));
  const float series =
      t * (0.127414796f +
           t * (-0.142248368f + t * (0.710706871f + t * (-0.726576014f + t * 0.530702715f))));
  const float tail = series * exponential;
  return {u < 0 ? tail : 1.0f - tail, 0.398942280f * exponential};
}
HASTEN_GPU_CODE float gelu(float u) { return u * normal_at(u).below; }
HASTEN_GPU_CODE float gelu_slope(float u) {
  const Normal normal = normal_at(u);
  return normal.below + u * normal.density;
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

// The rows and the columns of a thread that works on a part of the rows, down its columns. The grid has
// a block for each part of the rows and each tile of columns.
template <int kPack>
struct TilePlace {
  static constexpr int kColumns = kWarp * kPack;

  template <class Block>
  HASTEN_GPU_CODE TilePlace(const Block& block, Index rows, Index columns, Index parts) {
    const Index tiles = (columns + kColumns - 1) / kColumns;
    part = block.index() / tiles;
    tile = block.index() % tiles * kColumns;
    column = tile + block.thread() % kWarp * kPack;
    first = rows * part / parts + block.thread() / kWarp;
    last = column < columns ? rows * (part + 1) / parts : 0;
  }

  // Calls body(rows, count): the next rows of this thread, at most kDepth.
  template <int kDepth, class Body>
  HASTEN_GPU_CODE void for_groups(Body body) const {
    for (Index row = first; row < last; row += kDepth * kTileSlices) {
      const Index left = (last - row + kTileSlices - 1) / kTileSlices;
      body(row, left < kDepth ? static_cast<int>(left) : kDepth);
    }
  }

  // Writes the sum over the block's threads of each column to sums[column].
  template <class Block>
  HASTEN_GPU_CODE void write(const Block& block, const float (&values)[kPack], float* sums,
                             Index columns) const {
    float* const shared = block.shared();
    for (int i = 0; i < kPack; ++i) shared[block.thread() * kPack + i] = values[i];
    block.sync();
    const int own = block.thread();
    if (own < kColumns && tile + own < columns) {
      float sum = 0;
      for (int slice = 0; slice < kTileSlices; ++slice) sum += shared[slice * kColumns + own];
      sums[tile + own] = sum;
    }
  }

  Index part, tile, column, first, last;
};

template <class T, int kPack>
struct BiasGeluKernel {
  const T* x;
  const float* bias;
  T* y;
  Index parts, rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    constexpr int kDepth = 4;
    const TilePlace<kPack> place(block, rows, columns, parts);
    if (place.column >= columns) return;
    float added[kPack];
    load_pack(bias + place.column, added);
    place.template for_groups<kDepth>([&](Index row, int count) {
      const Index at = row * columns + place.column, step = kTileSlices * columns;
      Pack<T, kPack> in[kDepth];
      for (int r = 0; r < kDepth; ++r)
        if (r < count) in[r] = read_pack<kPack>(x + at + r * step);
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        float out[kPack];
        for (int i = 0; i < kPack; ++i) out[i] = gelu(load(in[r].values[i]) + added[i]);
        write_pack(y + at + r * step, rounded<T>(out));
      }
    });
  }
};

// Writes dx, and to sums [parts, columns] the sums of dx over the rows of each part.
template <class T, int kPack>
struct BiasGeluBackwardKernel {
  const T *dy, *x;
  const float* bias;
  T* dx;
  float* sums;
  Index parts, rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    constexpr int kDepth = 4;
    const TilePlace<kPack> place(block, rows, columns, parts);
    float added[kPack] = {}, sum[kPack] = {};
    if (place.column < columns) load_pack(bias + place.column, added);
    place.template for_groups<kDepth>([&](Index row, int count) {
      const Index at = row * columns + place.column, step = kTileSlices * columns;
      Pack<T, kPack> in[kDepth], gradient[kDepth];
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        in[r] = read_pack<kPack>(x + at + r * step);
        gradient[r] = read_pack<kPack>(dy + at + r * step);
      }
      for (int r = 0; r < kDepth; ++r) {
        if (r >= count) break;
        float out[kPack];
        for (int i = 0; i < kPack; ++i) {
          out[i] = load(gradient[r].values[i]) * gelu_slope(load(in[r].values[i]) + added[i]);
          sum[i] += out[i];
        }
        write_pack(dx + at + r * step, rounded<T>(out));
      }
    });
    place.write(block, sum, sums + place.part * columns, columns);
  }
};

// The columns of a thread in a block that holds a row in its registers: kPacks packs of kPack columns.
// Packs of four columns are in pairs, 64 columns apart, because these share their random words.
template <int kPack, int kPacks>
struct RowPlace {
  static constexpr int kTogether = kPack == 1 ? 1 : 2;

  template <class Block>
  HASTEN_GPU_CODE RowPlace(const Block& block, Index columns)
      : thread(block.thread()), threads(block.threads()), columns(static_cast<int>(columns)) {}

  HASTEN_GPU_CODE int column(int pack) const {
    if constexpr (kPack == 1) return thread + pack * threads;
    const int pair = thread + pack / 2 * threads;
    return pair / 16 * 128 + pair % 16 * 4 + pack % 2 * 64;
  }
  HASTEN_GPU_CODE bool has(int pack) const { return column(pack) < columns; }

  // Calls body(pack, factors of dropout) for each pack of this thread.
  template <class Body>
  HASTEN_GPU_CODE void for_factors(const Decisions& decisions, Index row, Body body) const {
    for (int pack = 0; pack < kPacks; pack += kTogether) {
      float factors[kTogether][kPack];
      if constexpr (kPack == 1) {
        decisions.factors(row, column(pack), factors[0]);
      } else {
        decisions.factors(row, column(pack), factors[0], factors[1]);
      }
      for (int i = 0; i < kTogether; ++i)
        if (has(pack + i)) body(pack + i, factors[i]);
    }
  }

  int thread, threads, columns;
};

template <class T, int kPack, int kPacks>
struct DropoutKernel {
  using Place = RowPlace<kPack, kPacks>;

  const T* x;
  Decisions decisions;
  T* y;
  Index rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, columns);
    for_rows(block, rows, [&](Index row) {
      const Index start = row * columns;
      Pack<T, kPack> in[kPacks];
      for (int p = 0; p < kPacks; ++p)
        if (place.has(p)) in[p] = read_pack<kPack>(x + start + place.column(p));
      place.for_factors(decisions, row, [&](int p, const float(&factors)[kPack]) {
        float out[kPack];
        for (int i = 0; i < kPack; ++i) out[i] = load(in[p].values[i]) * factors[i];
        write_pack(y + start + place.column(p), rounded<T>(out));
      });
    });
  }
};

template <class T, int kPack, int kPacks>
struct DropoutAddNormKernel {
  using Place = RowPlace<kPack, kPacks>;
  using Row = Pack<T, kPack>[kPacks];

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
    const Place place(block, columns);
    for_rows(block, rows, [&](Index row) {
      Row stored;
      float first_mean[1] = {write_z(place, row, stored)};
      block.sum(first_mean);
      first_mean[0] /= static_cast<float>(columns);
      // As on the CPU, a second pass over the stored row corrects the mean and gives the variance.
      float sums[2] = {};  // of the differences from first_mean, and of their squares
      for (int p = 0; p < kPacks; ++p) {
        if (!place.has(p)) continue;
        for (int i = 0; i < kPack; ++i) {
          const float d = load(stored[p].values[i]) - first_mean[0];
          sums[0] += d;
          sums[1] += d * d;
        }
      }
      block.sum(sums);
      const float shift = sums[0] / static_cast<float>(columns);
      const float variance = (sums[1] - sums[0] * shift) / static_cast<float>(columns);
      write_y(place, row, stored, first_mean[0] + shift,
              1.0f / sqrtf((variance < 0 ? 0.0f : variance) + epsilon));
    });
  }

 private:
  // Writes z of a row and keeps it. Returns the sum of this thread's numbers before rounding.
  HASTEN_GPU_CODE float write_z(const Place& place, Index row, Row& stored) const {
    const Index start = row * columns;
    Row in, more;
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      in[p] = read_pack<kPack>(x + start + place.column(p));
      more[p] = read_pack<kPack>(residual + start + place.column(p));
    }
    float sum = 0;
    place.for_factors(decisions, row, [&](int p, const float(&factors)[kPack]) {
      float out[kPack], added[kPack];
      load_pack(bias + place.column(p), added);
      for (int i = 0; i < kPack; ++i) {
        out[i] = (load(in[p].values[i]) + added[i]) * factors[i] + load(more[p].values[i]);
        sum += out[i];
      }
      stored[p] = rounded<T>(out);
      write_pack(z + start + place.column(p), stored[p]);
    });
    return sum;
  }

  HASTEN_GPU_CODE void write_y(const Place& place, Index row, const Row& stored, float m,
                               float inverse) const {
    if (place.thread == 0) {
      mean[row] = m;
      rstd[row] = inverse;
    }
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      float out[kPack], scales[kPack], shifts[kPack];
      load_pack(gamma + place.column(p), scales);
      load_pack(beta + place.column(p), shifts);
      for (int i = 0; i < kPack; ++i)
        out[i] = (load(stored[p].values[i]) - m) * inverse * scales[i] + shifts[i];
      write_pack(y + row * columns + place.column(p), rounded<T>(out));
    }
  }
};

// Writes dz and dx, and to sums [parts, 3 columns] the gradients of bias, gamma and beta over the rows
// of each part, side by side. The grid has a block for each part, which reads kRows rows at once.
template <class T, int kPack, int kPacks>
struct DropoutAddNormBackwardKernel {
  using Place = RowPlace<kPack, kPacks>;
  static constexpr int kRows = kPack * kPacks <= 8 ? 4 : 1;

  const T *dy, *z;
  const float *mean, *rstd, *gamma;
  Decisions decisions;
  T *dz, *dx;
  float* sums;
  Index parts, rows, columns;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const Place place(block, columns);
    float scales[kPacks][kPack];
    for (int p = 0; p < kPacks; ++p)
      if (place.has(p)) load_pack(gamma + place.column(p), scales[p]);
    Gradients gradients;
    const Index last = rows * (block.index() + 1) / parts;
    for (Index row = rows * block.index() / parts; row < last; row += kRows) {
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
    write_sums(place, gradients, sums + block.index() * 3 * columns);
  }

 private:
  struct Row {
    Pack<T, kPack> gradient[kPacks], stored[kPacks];
    float mean, inverse;
  };
  struct Gradients {
    float bias[kPacks][kPack] = {}, gamma[kPacks][kPack] = {}, beta[kPacks][kPack] = {};
  };

  HASTEN_GPU_CODE void read(const Place& place, Index row, Row& to) const {
    to.mean = mean[row];
    to.inverse = rstd[row];
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      const Index at = row * columns + place.column(p);
      to.gradient[p] = read_pack<kPack>(dy + at);
      to.stored[p] = read_pack<kPack>(z + at);
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
    const float dot = means[0] / static_cast<float>(columns),
                sum = means[1] / static_cast<float>(columns);
    place.for_factors(decisions, index, [&](int p, const float(&factors)[kPack]) {
      float of_z[kPack], of_x[kPack];
      for (int i = 0; i < kPack; ++i) {
        const float d = load(row.gradient[p].values[i]), normed = xhat(row, p, i);
        of_z[i] = (d * scales[p][i] - sum - normed * dot) * row.inverse;
        of_x[i] = of_z[i] * factors[i];
        gradients.bias[p][i] += of_x[i];
        gradients.gamma[p][i] += d * normed;
        gradients.beta[p][i] += d;
      }
      const Index at = index * columns + place.column(p);
      write_pack(dz + at, rounded<T>(of_z));
      write_pack(dx + at, rounded<T>(of_x));
    });
  }

  HASTEN_GPU_CODE void write_sums(const Place& place, const Gradients& gradients,
                                  float* out) const {
    for (int p = 0; p < kPacks; ++p) {
      if (!place.has(p)) continue;
      for (int i = 0; i < kPack; ++i) {
        const int column = place.column(p) + i;
        out[column] = gradients.bias[p][i];
        out[columns + column] = gradients.gamma[p][i];
        out[2 * columns + column] = gradients.beta[p][i];
      }
    }
  }
};

// Writes the cross entropy of each row of logits and, if it differentiates, the gradient of its sum in
// the place of the logits. Rows have `stride` numbers, of which the first `columns` are logits; the
// others get a gradient of 0. A row whose label is `ignored` has the loss 0.
template <class T, int kPack>
struct CrossEntropyKernel {
  T* logits;
  const Index* labels;
  float* losses;
  Index ignored;
  float smoothing;
  bool differentiates;
  Index rows, columns, stride;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, rows, [&](Index row) {
      T* const x = logits + row * stride;
      const Index label = labels[row];
      const bool counts = label != ignored, holds = label >= 0 && label < columns;
      block.check_id(!counts || holds);
      if (!counts || !holds) {
        if (block.thread() == 0) losses[row] = 0;
        if (differentiates) write_zeros(block, x);
        return;
      }
      Sums sums;
      for_packs<kPack>(block, stride, [&](Index column) {
        float numbers[kPack];
        load_logits(x, column, numbers);
        sums.add(numbers);
      });
      const float top = block.most(sums.top);
      float totals[2] = {sums.exponentials * scaled_exp(sums.top - top), sums.logits};
      const float of_label = load(x[label]);  // before the sum, after which it is overwritten
      block.sum(totals);
      const float log_sum = logf(totals[0]), mean = totals[1] / static_cast<float>(columns);
      if (block.thread() == 0)
        losses[row] = log_sum - (1.0f - smoothing) * (of_label - top) - smoothing * (mean - top);
      if (differentiates)
        write_gradient(block, x, top + log_sum, smoothing / static_cast<float>(columns), label);
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
      exponentials *= scaled_exp(top - most);
      top = most;
      for (const float x : numbers) {
        exponentials += scaled_exp(x - top);
        logits += x == -kInfinity ? 0.0f : x;
      }
    }
  };

  static HASTEN_GPU_CODE float scaled_exp(float x) { return exp2f(1.44269504f * x); }

  // The padding counts as -infinity.
  HASTEN_GPU_CODE void load_logits(const T* x, Index column, float (&numbers)[kPack]) const {
    load_pack(x + column, numbers);
    for (int i = 0; i < kPack; ++i)
      if (column + i >= columns) numbers[i] = -kInfinity;
  }

  template <class Block>
  HASTEN_GPU_CODE void write_zeros(const Block& block, T* x) const {
    const float zeros[kPack] = {};
    for_packs<kPack>(block, stride,
                     [&](Index column) { write_pack(x + column, rounded<T>(zeros)); });
  }

  // Writes exp(x - base) - even, less (1 - smoothing) for the label.
  template <class Block>
  HASTEN_GPU_CODE void write_gradient(const Block& block, T* x, float base, float even,
                                      Index label) const {
    for_packs<kPack>(block, stride, [&](Index column) {
      float numbers[kPack];
      load_logits(x, column, numbers);
      for (int i = 0; i < kPack; ++i) {
        numbers[i] = column + i < columns ? scaled_exp(numbers[i] - base) - even : 0.0f;
        if (column + i == label) numbers[i] -= 1.0f - smoothing;
      }
      write_pack(x + column, rounded<T>(numbers));
    });
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
