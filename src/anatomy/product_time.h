// File: anatomy/product_time.h (internal)
// Predicts how long a GPU takes for a matrix product.
//
//   seconds_of({.rows = 4096, .columns = 1024, .inner = 4096}, speed_of(find_gpu("cuda:h200")));
//
// A kernel divides the result into tiles, and the GPU works on as many as it has multiprocessors at
// once. The last of these waves is rarely full, so a product takes longer than its FLOP suggest.
// Several kernels exist, with large tiles, which reuse their operands more, and with small ones,
// which waste less at the edges; some divide the inner dimension too. The library chooses well, so
// the shortest of their times is the prediction.
//
// Units: seconds. Sources: fitted to the products that NeuSight's data set has for V100 and A100,
// and for tensor cores of Hopper to those of benchmarks/results/gpu/h200-2026-11-26.jsonl
// (docs/gpu.md). Thread rule: pure functions.
#pragma once

#include "anatomy/gpu_speed.h"

namespace hasten::anatomy {

// `batch` products of [rows, inner] and [inner, columns].
struct Product {
  double batch = 1, rows = 0, columns = 0, inner = 0;
  NumberFormat format = NumberFormat::float32;
  // True for bmm and baddbmm, even of one matrix: they have kernels of their own.
  bool batched = false;
};

// Returns the time of the kernels on the GPU, without the gap before them (see call_time.h).
double seconds_of(const Product& product, const GpuSpeed& gpu);

}  // namespace hasten::anatomy
