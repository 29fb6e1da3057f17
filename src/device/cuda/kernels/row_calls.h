// File: device/cuda/kernels/row_calls.h (internal)
// Calls of the row kernels with tensors' addresses: which kernel runs, and on which grid.
//
//   start(BiasGeluCall{.x = x, .bias = bias, .y = y, .rows = 8, .columns = 768},
//         NumberType::bf16, launch);                   // launch(kernel, Grid)
//
// Numbers of type `void` have the type that is given, and all tensors are contiguous. A call without
// elements starts nothing. Throws nothing.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "device/cuda/kernels/row_kernels.h"

namespace hasten::gpu {

struct Grid {
  Index blocks;
  int threads;
};

struct BiasGeluCall {
  const void* x;
  const float* bias;
  void* y;
  Index rows, columns;
};
struct BiasGeluBackwardCall {
  const void *dy, *x;
  const float* bias;
  void* dx;
  float* sums;
  Index parts, rows, columns;
};
struct DropoutCall {
  const void* x;
  Decisions decisions;
  void* y;
  Index rows, columns;
};
struct DropoutAddNormCall {
  const void* x;
  const float* bias;
  const void* residual;
  const float *gamma, *beta;
  float epsilon;
  Decisions decisions;
  void *z, *y;
  float *mean, *rstd;
  Index rows, columns;
};
struct DropoutAddNormBackwardCall {
  const void *dy, *z;
  const float *mean, *rstd, *gamma;
  Decisions decisions;
  void *dz, *dx;
  float* sums;
  Index parts, rows, columns;
};

// A grid has at most this many blocks, which then have several rows each.
inline constexpr Index kMaxBlocks = Index{1} << 20;

// One block for a row, with a thread for each pack of its columns.
template <int kPack>
Grid grid_of_rows(Index rows, Index columns) {
  constexpr Index kWarp = 32;
  const Index packs = (columns + kPack - 1) / kPack, warps = (packs + kWarp - 1) / kWarp;
  return {.blocks = std::min(rows, kMaxBlocks),
          .threads = static_cast<int>(std::min<Index>(warps * kWarp, kMaxThreads))};
}

inline Grid grid_of_tiles(Index parts, Index columns) {
  return {.blocks = parts * ((columns + kTileColumns - 1) / kTileColumns), .threads = kMaxThreads};
}

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

// Calls body.operator()<T, kPack>(): with packs of 4 if all rows of T begin at a multiple of them.
template <class Body>
void with_packs(NumberType type, Index columns, std::initializer_list<const void*> tensors,
                Body body) {
  with_type(type, [&]<class T>(T*) {
    const bool fits =
        columns % 4 == 0 && std::all_of(tensors.begin(), tensors.end(), [](const void* x) {
          return reinterpret_cast<std::uintptr_t>(x) % sizeof(Pack<T, 4>) == 0;
        });
    if (fits) {
      body.template operator()<T, 4>();
    } else {
      body.template operator()<T, 1>();
    }
  });
}

template <class T>
const T* as(const void* x) {
  return static_cast<const T*>(x);
}
template <class T>
T* as(void* x) {
  return static_cast<T*>(x);
}

template <class Launch>
void start(const BiasGeluCall& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.columns, {c.x, c.y}, [&]<class T, int kPack>() {
    launch(
        BiasGeluKernel<T, kPack>{
            .x = as<T>(c.x), .bias = c.bias, .y = as<T>(c.y), .rows = c.rows, .columns = c.columns},
        grid_of_rows<kPack>(c.rows, c.columns));
  });
}

template <class Launch>
void start(const BiasGeluBackwardCall& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_type(type, [&]<class T>(T*) {
    launch(BiasGeluBackwardKernel<T>{.dy = as<T>(c.dy),
                                     .x = as<T>(c.x),
                                     .bias = c.bias,
                                     .dx = as<T>(c.dx),
                                     .sums = c.sums,
                                     .parts = c.parts,
                                     .rows = c.rows,
                                     .columns = c.columns},
           grid_of_tiles(c.parts, c.columns));
  });
}

template <class Launch>
void start(const DropoutCall& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.columns, {c.x, c.y}, [&]<class T, int kPack>() {
    launch(DropoutKernel<T, kPack>{.x = as<T>(c.x),
                                   .decisions = c.decisions,
                                   .y = as<T>(c.y),
                                   .rows = c.rows,
                                   .columns = c.columns},
           grid_of_rows<kPack>(c.rows, c.columns));
  });
}

template <class Launch>
void start(const DropoutAddNormCall& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.columns, {c.x, c.residual, c.z, c.y}, [&]<class T, int kPack>() {
    launch(DropoutAddNormKernel<T, kPack>{.x = as<T>(c.x),
                                          .bias = c.bias,
                                          .residual = as<T>(c.residual),
                                          .gamma = c.gamma,
                                          .beta = c.beta,
                                          .epsilon = c.epsilon,
                                          .decisions = c.decisions,
                                          .z = as<T>(c.z),
                                          .y = as<T>(c.y),
                                          .mean = c.mean,
                                          .rstd = c.rstd,
                                          .rows = c.rows,
                                          .columns = c.columns},
           grid_of_rows<kPack>(c.rows, c.columns));
  });
}

template <class Launch>
void start(const DropoutAddNormBackwardCall& c, NumberType type, const Launch& launch) {
  if (c.rows == 0 || c.columns == 0) return;
  with_packs(type, c.columns, {c.dy, c.z, c.dz, c.dx}, [&]<class T, int kPack>() {
    launch(DropoutAddNormBackwardKernel<T, kPack>{.dy = as<T>(c.dy),
                                                  .z = as<T>(c.z),
                                                  .mean = c.mean,
                                                  .rstd = c.rstd,
                                                  .gamma = c.gamma,
                                                  .decisions = c.decisions,
                                                  .dz = as<T>(c.dz),
                                                  .dx = as<T>(c.dx),
                                                  .rows = c.rows,
                                                  .columns = c.columns},
           grid_of_rows<kPack>(c.rows, c.columns));
    launch(DropoutAddNormSumsKernel<T>{.dy = as<T>(c.dy),
                                       .z = as<T>(c.z),
                                       .dx = as<T>(c.dx),
                                       .mean = c.mean,
                                       .rstd = c.rstd,
                                       .sums = c.sums,
                                       .parts = c.parts,
                                       .rows = c.rows,
                                       .columns = c.columns},
           grid_of_tiles(c.parts, c.columns));
  });
}

template <class Launch>
void start(const EmbeddingSumKernel& kernel, const Launch& launch) {
  if (kernel.rows == 0 || kernel.columns == 0) return;
  launch(kernel, grid_of_rows<1>(kernel.rows, kernel.columns));
}

}  // namespace hasten::gpu
