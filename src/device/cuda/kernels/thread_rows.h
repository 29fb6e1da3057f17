// File: device/cuda/kernels/thread_rows.h (internal)
// The rows and the columns on which a thread of a GPU kernel works.
//
// A kernel is a value that holds its arguments, and a function of a block of threads. A block has
//   thread(), threads()   this thread's number in the block, and how many there are
//   index(), count()      the block's number in the grid, and how many there are
//   sum(numbers)          which replaces each of an array's numbers by its sum over the block's threads
//   maximum(x)            the largest x of the block's threads, for all of them
//   shared()              kSharedFloats floats that the threads share
//   sync()                which waits until all threads of the block have called it
//   check_id(holds)       which ends the program if an id is outside of its table
// row_kernels.cu implements it on a GPU, and the grid emulator of the tests on the host.
//
// A GPU reads memory at its full rate if each thread has several reads of 16 or 8 bytes under way.
// So a thread reads packs of neighbouring numbers, and reads the packs of several rows before it
// uses the first one.
#pragma once

#include "device/cuda/kernels/dropout_decisions.h"

namespace hasten::gpu {

inline constexpr int kMaxThreads = 512;
inline constexpr int kWarp = 32;

// Sums over rows: a block has the columns of a warp's packs, and kTileSlices threads for each of
// them.
inline constexpr int kTileSlices = 8;
inline constexpr int kTileThreads = kWarp * kTileSlices;
inline constexpr int kMaxPack = 8;
inline constexpr int kSharedFloats = kTileThreads * kMaxPack;

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

// The rows and the columns of a thread that works on a part of the rows, down its columns. The grid
// has a block for each part of the rows and each tile of columns.
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

  // Calls body(rows, count) with the next rows of this thread, at most kDepth.
  template <int kDepth, class Body>
  HASTEN_GPU_CODE void for_groups(Body body) const {
    for (Index row = first; row < last; row += kDepth * kTileSlices) {
      const Index left = (last - row + kTileSlices - 1) / kTileSlices;
      body(row, left < kDepth ? static_cast<int>(left) : kDepth);
    }
  }

  // Sums each column over the threads of the block, and writes the sum to sums[column].
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

// The columns of a thread in a block that holds a row in its registers: kPacks packs of kPack
// columns. Packs of four columns are in pairs, 64 columns apart, because these share their random
// words.
template <int kPack, int kPacks>
struct RowPlace {
  static constexpr int kPacksPerGroup = kPack == 1 ? 1 : 2;

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
  HASTEN_GPU_CODE void for_factors(const DropoutDecisions& decisions, Index row, Body body) const {
    for (int pack = 0; pack < kPacks; pack += kPacksPerGroup) {
      float factors[kPacksPerGroup][kPack];
      if constexpr (kPack == 1) {
        decisions.factors(row, column(pack), factors[0]);
      } else {
        decisions.factors(row, column(pack), factors[0], factors[1]);
      }
      for (int i = 0; i < kPacksPerGroup; ++i)
        if (has(pack + i)) body(pack + i, factors[i]);
    }
  }

  int thread, threads, columns;
};

}  // namespace hasten::gpu
