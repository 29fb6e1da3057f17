#include "anatomy/product_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace hasten::anatomy {
namespace {

// A kind of kernel. `efficiency` is the share of the sustained rate that it reaches with every
// multiprocessor busy. A multiprocessor needs `saturation` tiles at once to reach it.
struct Tile {
  double rows, columns, efficiency, saturation;
};

constexpr Tile kFloatTiles[] = {{128, 128, 1.0, 1.08}, {64, 64, 0.86, 0.6}, {32, 32, 0.46, 1.4}};
constexpr Tile kTensorTiles[] = {{128, 256, 1.0, 1.0}, {128, 128, 0.9, 1.0}, {64, 64, 0.6, 1.0}};
// The tiles of cuBLAS's kernels for Hopper, from the kernel names in traces of steps on an H200.
// One block fills a multiprocessor, so kernels with tiles of medium size lose nothing.
constexpr Tile kHopperTiles[] = {{256, 128, 1.0, 1.0}, {192, 192, 1.0, 1.0},  {192, 128, 1.0, 1.0},
                                 {128, 160, 1.0, 1.0}, {128, 128, 0.95, 1.0}, {96, 64, 0.8, 1.0},
                                 {64, 64, 0.7, 1.0}};

// The cost of a tile's start and end, as a length of the inner dimension. A multiprocessor runs
// only one block of Hopper's kernels, so nothing else runs while the block stores its tile. Fitted
// to products of bfloat16, float16 and TF32 (benchmarks/results/gpu/h200-2026-11-26.jsonl).
constexpr double kFloatStart = 6.5, kTensorStart = 64, kHopperStart = 180;
// The share of an incomplete last wave that counts as a whole wave. The blocks of a kernel do not
// run in lockstep, so it is less than 1.
constexpr double kWholeWaves = 0.66;
// If a kernel divides the inner dimension, another kernel adds the parts.
constexpr double kSecondKernel = 10e-6;
constexpr double kMinInnerPart = 256;

bool is_hopper(const GpuSpeed& gpu) { return gpu.compute_capability == 90; }

// LibTorch's batched float products run in 128 x 128 tiles on Ampere and later, and in smaller
// tiles on earlier GPUs.
std::span<const Tile> tiles_of(const Product& product, const GpuSpeed& gpu) {
  if (gpu.uses_tensor_cores(product.format))
    return is_hopper(gpu) ? std::span<const Tile>(kHopperTiles)
                          : std::span<const Tile>(kTensorTiles);
  const std::span<const Tile> all = kFloatTiles;
  if (!product.batched) return all;
  return gpu.compute_capability >= 80 ? all.first(1) : all.subspan(1);
}

double start_of_tile(const Product& product, const GpuSpeed& gpu) {
  if (!gpu.uses_tensor_cores(product.format)) return kFloatStart;
  return is_hopper(gpu) ? kHopperStart : kTensorStart;
}

double bytes_per_number(NumberFormat format) {
  return format == NumberFormat::bfloat16 || format == NumberFormat::float16 ? 2 : 4;
}

// True if the rows of all operands begin at multiples of `bytes`. The strides of the operands are
// not known, so a first operand that is stored by columns counts as if it were stored by rows.
bool is_aligned(double bytes, const Product& product) {
  const double unit = bytes / bytes_per_number(product.format);
  return std::fmod(product.columns, unit) == 0 && std::fmod(product.inner, unit) == 0;
}

// The share of the rate that is left if the rows do not begin at multiples of 16 bytes, which the
// fastest kernels load at once. From Ampere on, a GPU copies pieces of 4 bytes and more to shared
// memory asynchronously; shorter pieces pass through registers. The shares for Hopper are measured
// on an H200 (benchmarks/results/gpu/h200-2026-11-26.jsonl); the share for older cards is an
// estimate.
constexpr double kNarrowLoads = 0.35, kLoadsThroughRegisters = 0.13, kUnalignedBeforeHopper = 0.5;

double alignment_factor(const Product& product, const GpuSpeed& gpu) {
  if (!gpu.uses_tensor_cores(product.format) || is_aligned(16, product)) return 1;
  if (gpu.compute_capability < 90) return kUnalignedBeforeHopper;
  return is_aligned(4, product) ? kNarrowLoads : kLoadsThroughRegisters;
}

double seconds_with_tile(const Product& product, const Tile& tile, double parts,
                         const GpuSpeed& gpu) {
  const double blocks = product.batch * std::ceil(product.rows / tile.rows) *
                        std::ceil(product.columns / tile.columns) * parts;
  const double waves = blocks / gpu.multiprocessors;
  const double counted = kWholeWaves * std::ceil(waves) + (1 - kWholeWaves) * std::max(waves, 1.0);
  const double flops_of_tile = 2 * tile.rows * tile.columns *
                               (std::ceil(product.inner / parts) + start_of_tile(product, gpu));
  const double rate = gpu.product_rate(product.format) * tile.efficiency *
                      alignment_factor(product, gpu) / gpu.multiprocessors;
  double seconds = std::max(counted, tile.saturation) * flops_of_tile / rate;
  if (parts > 1) {
    const double sums = 4 * product.batch * product.rows * product.columns * (parts + 1);
    seconds += sums / gpu.bytes_per_second + kSecondKernel;
  }
  return seconds;
}

double memory_seconds(const Product& product, const GpuSpeed& gpu) {
  const double numbers =
      product.batch * (product.rows * product.inner + product.inner * product.columns +
                       product.rows * product.columns);
  return numbers * bytes_per_number(product.format) / gpu.bytes_per_second;
}

}  // namespace

double product_seconds(const Product& product, const GpuSpeed& gpu) {
  double minimum = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles_of(product, gpu)) {
    const Tile turned = {tile.columns, tile.rows, tile.efficiency, tile.saturation};
    for (const double parts : {1.0, 2.0, 4.0, 8.0}) {
      const bool divides = parts > 1;
      if (divides && (product.batched || product.inner / parts < kMinInnerPart)) continue;
      minimum = std::min({minimum, seconds_with_tile(product, tile, parts, gpu),
                          seconds_with_tile(product, turned, parts, gpu)});
    }
  }
  return std::max(minimum, memory_seconds(product, gpu));
}

}  // namespace hasten::anatomy
