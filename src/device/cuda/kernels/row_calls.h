// File: device/cuda/kernels/row_calls.h (internal)
// Calls of the row kernels with tensors' addresses: which kernel runs, and on which grid.
//
//   start(BiasGeluCall<>{.x = x, .bias = bias, .y = y, .rows = 8, .columns = 768},
//         NumberType::bf16, launch);                   // launch(kernel, Grid)
//
// The calls are defined in the kernels' files. The type of the numbers is passed separately; all
// tensors are contiguous. A call without elements starts nothing, except that a call with sums over
// rows writes zeros to them if there are no rows. Throws nothing. Each call computes the same as
// the CPU kernel of its name (ops/kernels/kernels.h), with sums in float in another order.
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <type_traits>

#include "device/cuda/kernels/column_sum_kernel.h"
#include "device/cuda/kernels/cross_entropy_kernel.h"
#include "device/cuda/kernels/dropout_norm_kernels.h"
#include "device/cuda/kernels/embedding_gradient_kernels.h"
#include "device/cuda/kernels/embedding_sum_kernel.h"
#include "device/cuda/kernels/gelu_kernels.h"
#include "device/cuda/kernels/softmax_dropout_kernels.h"

namespace hasten::gpu {

struct Grid {
  Index blocks;
  int threads;
};

// A grid has at most this many blocks. If there are more rows, each block processes several.
inline constexpr Index kMaxBlocks = Index{1} << 20;

inline int round_up_to_warps(Index threads) {
  return static_cast<int>(
      std::clamp<Index>((threads + kWarp - 1) / kWarp * kWarp, kWarp, kMaxThreads));
}

// One block for a row, with a thread for each pack of its columns.
template <int kPack>
Grid grid_of_rows(Index rows, Index columns) {
  return {.blocks = std::min(rows, kMaxBlocks),
          .threads = std::min(round_up_to_warps((columns + kPack - 1) / kPack), 256)};
}

template <int kPack>
Grid grid_of_tiles(Index parts, Index columns) {
  constexpr int kColumns = TilePlace<kPack>::kColumns;
  return {.blocks = parts * ((columns + kColumns - 1) / kColumns), .threads = kTileThreads};
}

// Returns the number of parts of the rows in a kernel that needs no sums: each thread has about 8
// rows.
inline Index parts_of_rows(Index rows) {
  constexpr Index kRows = 8 * kTileSlices;
  return (rows + kRows - 1) / kRows;
}

// Returns the threads of a block that holds rows in its registers.
template <int kPack, int kPacks>
int threads_of_row(Index columns) {
  // Packs of 4 columns come in pairs, which need whole groups of 128 columns.
  const Index packs = kPack == 1 ? columns : (columns + 127) / 128 * 32;
  return round_up_to_warps((packs + kPacks - 1) / kPacks);
}

template <int kPack, int kPacks>
Grid grid_of_register_rows(Index rows, Index columns) {
  return {.blocks = std::min(rows, kMaxBlocks), .threads = threads_of_row<kPack, kPacks>(columns)};
}

// Returns the most threads that a row should have: one warp, which waits for no other, if there are
// enough rows to occupy a GPU with one warp for each.
inline Index threads_for(Index rows) { return rows >= 8192 ? kWarp : kMaxThreads; }

// The widest row that a block can hold in its registers.
inline constexpr Index kMaxRegisterColumns = Index{kMaxThreads} * 32;

// Calls body with a null pointer of the type.
template <class Body>
void with_type(NumberType type, Body body) {
  switch (type) {
    case NumberType::f32:
      return body(static_cast<float*>(nullptr));
    case NumberType::bf16:
      return body(static_cast<Bfloat16*>(nullptr));
    case NumberType::fp16:
      return body(static_cast<Float16*>(nullptr));
  }
}

// Returns whether all rows of these tensors, whose elements have `width` bytes, begin at a multiple
// of `count` elements.
inline bool are_pack_aligned(int count, int width, Index columns,
                             std::initializer_list<const void*> tensors) {
  const auto bytes = static_cast<std::uintptr_t>(count) * static_cast<std::uintptr_t>(width);
  return columns % count == 0 && std::all_of(tensors.begin(), tensors.end(), [&](const void* x) {
           return reinterpret_cast<std::uintptr_t>(x) % bytes == 0;
         });
}

// Calls body.operator()<T, kPack>(). Uses packs of 16 bytes if the rows of all tensors and
// `floats`, the vectors of the columns, begin at a multiple of 16 bytes.
template <class Body>
void with_packs(NumberType type, Index columns, std::initializer_list<const void*> tensors,
                std::initializer_list<const void*> floats, Body body) {
  with_type(type, [&]<class T>(T*) {
    constexpr int kWidth = sizeof(T), kPack = 16 / kWidth;
    if (are_pack_aligned(kPack, kWidth, columns, tensors) &&
        are_pack_aligned(4, sizeof(float), columns, floats)) {
      body.template operator()<T, kPack>();
    } else {
      body.template operator()<T, 1>();
    }
  });
}

// Calls body.operator()<T, kPack, kPacks>() for a kernel that holds rows in its registers. Chooses
// the number of packs so that `threads` threads hold a row, or more threads if these are not
// enough.
template <class Body>
void with_register_rows(NumberType type, Index columns, Index threads,
                        std::initializer_list<const void*> tensors,
                        std::initializer_list<const void*> floats, Body body) {
  with_type(type, [&]<class T>(T*) {
    const auto fits = [&](int pack, int packs, Index max_threads) {
      return columns <= max_threads * pack * packs;
    };
    if (are_pack_aligned(4, sizeof(T), columns, tensors) &&
        are_pack_aligned(4, sizeof(float), columns, floats)) {
      if (fits(4, 2, threads)) return body.template operator()<T, 4, 2>();
      if (fits(4, 4, threads)) return body.template operator()<T, 4, 4>();
      if (fits(4, 6, threads)) return body.template operator()<T, 4, 6>();
      return body.template operator()<T, 4, 8>();
    }
    if (fits(1, 8, kMaxThreads)) return body.template operator()<T, 1, 8>();
    return body.template operator()<T, 1, 32>();
  });
}

// The call for numbers of type T.
template <class T, template <class> class Call>
Call<T> typed(const Call<void>& call) {
  return std::bit_cast<Call<T>>(call);
}

// The call for sublayers of type T in a stream of type S.
template <class T, class S, template <class, class> class Call>
Call<T, S> typed(const Call<void, void>& call) {
  return std::bit_cast<Call<T, S>>(call);
}

// Calls of dropout_add_pre_norm: the stream is float, and the number type applies to the sublayers.
struct DropoutAddPreNormCall {
  DropoutAddNormCall<> call;
};
struct DropoutAddPreNormBackwardCall {
  DropoutAddNormBackwardCall<> call;
};

// Calls of bias_tanh_gelu.
struct BiasTanhGeluCall {
  BiasGeluCall<> call;
};
struct BiasTanhGeluBackwardCall {
  BiasGeluBackwardCall<> call;
};

template <class Gelu, class Launch>
void start_gelu(const BiasGeluCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.columns, {c.x, c.y}, {c.bias}, [&]<class T, int kPack>() {
    const Index parts = parts_of_rows(c.rows);
    launch(BiasGeluKernel<T, kPack, Gelu>{typed<T>(c), parts},
           grid_of_tiles<kPack>(parts, c.columns));
  });
}

template <class Gelu, class Launch>
void start_gelu(const BiasGeluBackwardCall<>& c, NumberType type, const Launch& launch) {
  if (c.columns == 0) return;
  with_packs(type, c.columns, {c.dy, c.x, c.dx}, {c.bias}, [&]<class T, int kPack>() {
    launch(BiasGeluBackwardKernel<T, kPack, Gelu>{typed<T>(c)},
           grid_of_tiles<kPack>(c.parts, c.columns));
  });
}

template <class Launch>
void start(const BiasGeluCall<>& c, NumberType type, const Launch& launch) {
  start_gelu<ExactGelu>(c, type, launch);
}

template <class Launch>
void start(const BiasGeluBackwardCall<>& c, NumberType type, const Launch& launch) {
  start_gelu<ExactGelu>(c, type, launch);
}

template <class Launch>
void start(const BiasTanhGeluCall& c, NumberType type, const Launch& launch) {
  start_gelu<TanhGelu>(c.call, type, launch);
}

template <class Launch>
void start(const BiasTanhGeluBackwardCall& c, NumberType type, const Launch& launch) {
  start_gelu<TanhGelu>(c.call, type, launch);
}

template <class Launch>
void start(const ColumnSumCall<>& c, NumberType type, const Launch& launch) {
  if (c.columns == 0) return;
  with_packs(type, c.columns, {c.x}, {}, [&]<class T, int kPack>() {
    launch(ColumnSumKernel<T, kPack>{typed<T>(c)}, grid_of_tiles<kPack>(c.parts, c.columns));
  });
}

template <class Launch>
void start(const DropoutCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_register_rows(type, c.columns, threads_for(c.rows), {c.x, c.y}, {},
                     [&]<class T, int kPack, int kPacks>() {
                       launch(DropoutKernel<T, kPack, kPacks>{typed<T>(c)},
                              grid_of_register_rows<kPack, kPacks>(c.rows, c.columns));
                     });
}

template <class Launch>
void start(const DropoutAddNormCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_register_rows(type, c.columns, threads_for(c.rows), {c.x, c.residual, c.z, c.y},
                     {c.bias, c.gamma, c.beta}, [&]<class T, int kPack, int kPacks>() {
                       launch(DropoutAddNormKernel<T, T, true, kPack, kPacks>{typed<T, T>(c)},
                              grid_of_register_rows<kPack, kPacks>(c.rows, c.columns));
                     });
}

template <class Launch>
void start(const DropoutAddPreNormCall& pre, NumberType type, const Launch& launch) {
  const DropoutAddNormCall<>& c = pre.call;
  if (c.rows == 0 || c.columns == 0) return;
  with_register_rows(
      type, c.columns, threads_for(c.rows), {c.x, c.y}, {c.residual, c.z, c.bias, c.gamma, c.beta},
      [&]<class T, int kPack, int kPacks>() {
        const auto run = [&]<bool kCentres>(std::bool_constant<kCentres>) {
          launch(DropoutAddNormKernel<T, float, kCentres, kPack, kPacks>{typed<T, float>(c)},
                 grid_of_register_rows<kPack, kPacks>(c.rows, c.columns));
        };
        c.beta != nullptr ? run(std::true_type()) : run(std::false_type());
      });
}

template <class Launch>
void start(const DropoutAddNormBackwardCall<>& c, NumberType type, const Launch& launch) {
  if (c.columns == 0) return;
  with_register_rows(
      type, c.columns, kMaxThreads, {c.dy, c.z, c.dz, c.dx}, {c.gamma},
      [&]<class T, int kPack, int kPacks>() {
        launch(DropoutAddNormBackwardKernel<T, T, true, false, kPack, kPacks>{typed<T, T>(c)},
               Grid{.blocks = c.parts, .threads = threads_of_row<kPack, kPacks>(c.columns)});
      });
}

template <class Launch>
void start(const DropoutAddPreNormBackwardCall& pre, NumberType type, const Launch& launch) {
  const DropoutAddNormBackwardCall<>& c = pre.call;
  if (c.columns == 0) return;
  with_register_rows(
      type, c.columns, kMaxThreads, {c.dy, c.dx}, {c.z, c.dz, c.of_stream, c.gamma},
      [&]<class T, int kPack, int kPacks>() {
        const auto run = [&]<bool kCentres>(std::bool_constant<kCentres>) {
          launch(
              DropoutAddNormBackwardKernel<T, float, kCentres, true, kPack, kPacks>{
                  typed<T, float>(c)},
              Grid{.blocks = c.parts, .threads = threads_of_row<kPack, kPacks>(c.columns)});
        };
        c.mean != nullptr ? run(std::true_type()) : run(std::false_type());
      });
}

template <class Launch>
void start(const SoftmaxDropoutCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.scores.keys == 0) return;
  with_register_rows(type, c.scores.keys, threads_for(c.rows), {c.scores.products, c.out},
                     {c.scores.mask}, [&]<class T, int kPack, int kPacks>() {
                       launch(SoftmaxDropoutKernel<T, kPack, kPacks>{typed<T>(c)},
                              grid_of_register_rows<kPack, kPacks>(c.rows, c.scores.keys));
                     });
}

template <class Launch>
void start(const SoftmaxDropoutBackwardCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.scores.keys == 0) return;
  with_register_rows(type, c.scores.keys, threads_for(c.rows),
                     {c.scores.products, c.gradient, c.of_products}, {c.scores.mask},
                     [&]<class T, int kPack, int kPacks>() {
                       launch(SoftmaxDropoutBackwardKernel<T, kPack, kPacks>{typed<T>(c)},
                              grid_of_register_rows<kPack, kPacks>(c.rows, c.scores.keys));
                     });
}

template <class Launch>
void start(const CrossEntropyCall<>& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.stride, {c.logits}, {}, [&]<class T, int kPack>() {
    launch(CrossEntropyKernel<T, kPack>{typed<T>(c)},
           Grid{.blocks = std::min(c.rows, kMaxBlocks),
                .threads = round_up_to_warps((c.stride + kPack - 1) / kPack)});
  });
}

template <class Launch>
void start(const EmbeddingSumKernel& kernel, const Launch& launch) {
  if (kernel.rows == 0 || kernel.columns == 0) return;
  launch(kernel, grid_of_rows<1>(kernel.rows, kernel.columns));
}

template <class Launch>
void start(const EmbeddingGradientCall& c, const Launch& launch) {
  if (c.tokens == 0 || c.columns == 0) return;
  const Index chunks = chunks_of(c.tokens);
  const auto run = [&]<int kPack>(std::integral_constant<int, kPack>) {
    launch(EmbeddingChunksKernel<kPack>{c, chunks}, grid_of_rows<kPack>(chunks, c.columns));
    launch(EmbeddingMergeKernel<kPack>{c, chunks}, grid_of_tiles<kPack>(chunks, c.columns));
  };
  if (are_pack_aligned(4, sizeof(float), c.columns, {c.gradient, c.partial, c.table})) {
    run(std::integral_constant<int, 4>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

}  // namespace hasten::gpu
