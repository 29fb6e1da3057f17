// File: anatomy/product_time.h (internal)
// Predicts how long a GPU takes for a matrix product.
//
//   const GpuSpeed speed = speed_of(find_gpu("cuda:h200"));
//   product_seconds({.rows = 4096, .columns = 1024, .inner = 4096}, speed);
//
// A kernel divides the result into tiles, and the GPU computes one tile per multiprocessor at a
// time. The last of these waves is rarely full, so a product takes longer than its FLOP suggest.
// Kernels with large tiles reuse their operands more, kernels with small tiles waste less at the
// edges, and some kernels also divide the inner dimension. The library chooses well, so the
// prediction is the shortest of their times.
//
// Units: seconds. Sources: fitted to the products in NeuSight's data set for V100 and A100. For
// tensor cores of Hopper, fitted to the products in benchmarks/results/gpu/h200-2026-11-26.jsonl
// (docs/gpu.md). Thread rule: pure functions.
#pragma once

#include "anatomy/gpu_speed.h"

namespace hasten::anatomy {

// `batch` products of [rows, inner] and [inner, columns].
struct Product {
  double batch = 1, rows = 0, columns = 0, inner = 0;
  NumberFormat format = NumberFormat::float32;
  // True for bmm and baddbmm, even with one matrix: they use different kernels.
  bool batched = false;
};

// Returns the time of the kernels on the GPU, without the gap before them (see call_time.h).
double product_seconds(const Product& product, const GpuSpeed& gpu);

}  // namespace hasten::anatomy
