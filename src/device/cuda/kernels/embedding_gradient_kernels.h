// File: device/cuda/kernels/embedding_gradient_kernels.h (internal)
// The kernels of the gradient of an embedding table: the sums of the rows of a gradient that have
// the same id, in an order that depends only on the ids.
//
// The tokens are sorted by their ids. A first kernel adds the rows of kChunk tokens at a time. The
// sum of an id whose tokens are all in one chunk is complete; a second kernel adds the sums of the
// others.
#pragma once

#include <cstdint>

#include "device/cuda/kernels/thread_rows.h"

namespace hasten::gpu {

// gradient [tokens, columns]; ids [tokens], ascending; order [tokens]: the token of each of them;
// table [rows, columns]: the rows of the ids that occur are written, except that of the id
// `skipped`.
struct EmbeddingGradientCall {
  static constexpr Index kChunk = 32;

  const float* gradient;
  const Index* order;
  const std::int32_t* ids;
  Index skipped;
  // [chunks, 2, columns]: the sum of a chunk's first id if it continues from the previous chunk,
  // and the sum of its last id if it continues in the next chunk.
  float* partial;
  float* table;
  Index tokens, rows, columns;

  HASTEN_GPU_CODE Index first_of(Index chunk) const { return chunk * kChunk; }
  HASTEN_GPU_CODE Index last_of(Index chunk) const {
    return first_of(chunk) + kChunk < tokens ? first_of(chunk) + kChunk : tokens;
  }
  // Returns whether the sorted token has the same id as the one before.
  HASTEN_GPU_CODE bool continues(Index token) const {
    return token > 0 && token < tokens && ids[token] == ids[token - 1];
  }
  HASTEN_GPU_CODE bool has_row(Index id) const { return id >= 0 && id < rows; }
  HASTEN_GPU_CODE float* partial_of(Index chunk, int side) const {
    return partial + (2 * chunk + side) * columns;
  }
};

// Returns the number of chunks for a number of tokens.
inline Index chunks_of(Index tokens) {
  return (tokens + EmbeddingGradientCall::kChunk - 1) / EmbeddingGradientCall::kChunk;
}

template <int kPack>
struct EmbeddingChunksKernel {
  EmbeddingGradientCall call;
  Index chunks;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    for_rows(block, chunks, [&](Index chunk) {
      for_packs<kPack>(block, call.columns, [&](Index column) { add_chunk(block, chunk, column); });
    });
  }

 private:
  template <class Block>
  HASTEN_GPU_CODE void add_chunk(const Block& block, Index chunk, Index column) const {
    constexpr int kDepth = 8;
    const Index last = call.last_of(chunk);
    Index begin = call.first_of(chunk);  // the first token of the current id
    float sum[kPack] = {};
    for (Index token = begin; token < last; token += kDepth) {
      Pack<float, kPack> in[kDepth];
      for (int i = 0; i < kDepth; ++i) {
        if (token + i < last)
          in[i] = read_pack<kPack>(call.gradient + call.order[token + i] * call.columns + column);
      }
      for (int i = 0; i < kDepth; ++i) {
        const Index next = token + i + 1;
        if (next > last) break;
        for (int c = 0; c < kPack; ++c) sum[c] += in[i].values[c];
        if (next < last && call.continues(next)) continue;
        write(block, chunk, begin, next, column, sum);
        for (float& each : sum) each = 0;
        begin = next;
      }
    }
  }

  template <class Block>
  HASTEN_GPU_CODE void write(const Block& block, Index chunk, Index begin, Index end, Index column,
                             const float (&sum)[kPack]) const {
    const Index id = call.ids[begin];
    block.check_id(call.has_row(id));
    float* row = call.table + id * call.columns;
    if (begin == call.first_of(chunk) && call.continues(begin)) {
      row = call.partial_of(chunk, 0);
    } else if (end == call.last_of(chunk) && call.continues(end)) {
      row = call.partial_of(chunk, 1);
    } else if (id == call.skipped || !call.has_row(id)) {
      return;
    }
    write_pack(row + column, rounded<float>(sum));
  }
};

// The grid has a block for each chunk and each tile of columns. A block works only if an id begins
// in its chunk and continues in the next one.
template <int kPack>
struct EmbeddingMergeKernel {
  EmbeddingGradientCall call;
  Index chunks;

  template <class Block>
  HASTEN_GPU_CODE void operator()(const Block& block) const {
    const TilePlace<kPack> place(block, chunks, call.columns, chunks);
    const Index chunk = place.part, last = call.last_of(chunk), first = call.first_of(chunk);
    if (!call.continues(last)) return;
    const Index id = call.ids[last];
    const bool began_before = call.continues(first) && call.ids[first] == id;
    if (began_before || id == call.skipped || !call.has_row(id)) return;
    float sum[kPack] = {};
    if (place.column < call.columns) {
      const int slice = block.thread() / kWarp;
      if (slice == 0) add(call.partial_of(chunk, 1), place.column, sum);
      for (Index other = chunk + 1 + slice; other < chunks && call.ids[call.first_of(other)] == id;
           other += kTileSlices)
        add(call.partial_of(other, 0), place.column, sum);
    }
    place.write(block, sum, call.table + id * call.columns, call.columns);
  }

 private:
  static HASTEN_GPU_CODE void add(const float* row, Index column, float (&sum)[kPack]) {
    float numbers[kPack];
    load_pack(row + column, numbers);
    for (int i = 0; i < kPack; ++i) sum[i] += numbers[i];
  }
};

}  // namespace hasten::gpu
