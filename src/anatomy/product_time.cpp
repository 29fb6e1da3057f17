#include "anatomy/product_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace hasten::anatomy {
namespace {

// A kind of kernel. `efficiency` is the share of the sustained rate that it reaches with every
// multiprocessor busy; one multiprocessor needs `saturation` tiles at once for that.
struct Tile {
  double rows, columns, efficiency, saturation;
};

constexpr Tile kFloatTiles[] = {{128, 128, 1.0, 1.08}, {64, 64, 0.86, 0.6}, {32, 32, 0.46, 1.4}};
constexpr Tile kTensorTiles[] = {{128, 256, 1.0, 1.0}, {128, 128, 0.9, 1.0}, {64, 64, 0.6, 1.0}};

// The length of the inner dimension that a tile's start and end are worth.
constexpr double kFloatStart = 6.5, kTensorStart = 64;
// The share of an incomplete last wave that counts as a whole one. Blocks of one kernel do not run
// in lockstep, so it is less than 1.
constexpr double kWholeWaves = 0.66;
// A kernel with a divided inner dimension is followed by one that adds the parts.
constexpr double kSecondKernel = 10e-6;
constexpr double kLeastPart = 256;

// LibTorch's batched products of float run in 128 x 128 tiles from Ampere on, and in smaller ones
// before.
std::span<const Tile> tiles_of(const Product& product, const GpuSpeed& gpu) {
  const std::span<const Tile> all =
      gpu.uses_tensor_cores(product.format) ? std::span(kTensorTiles) : std::span(kFloatTiles);
  if (gpu.uses_tensor_cores(product.format) || !product.batched) return all;
  return gpu.compute_capability >= 80 ? all.first(1) : all.subspan(1);
}

double bytes_per_number(NumberFormat format) {
  return format == NumberFormat::bfloat16 || format == NumberFormat::float16 ? 2 : 4;
}

// Tensor cores load 16 bytes at once. Rows of another length take kernels that load single numbers.
double alignment_factor(const Product& product, const GpuSpeed& gpu) {
  const double unit = 16 / bytes_per_number(product.format);
  const bool aligned = std::fmod(product.columns, unit) == 0 && std::fmod(product.inner, unit) == 0;
  return aligned || !gpu.uses_tensor_cores(product.format) ? 1 : 0.5;
}

double with_tile(const Product& product, const Tile& tile, double parts, const GpuSpeed& gpu) {
  const double blocks = product.batch * std::ceil(product.rows / tile.rows) *
                        std::ceil(product.columns / tile.columns) * parts;
  const double waves = blocks / gpu.multiprocessors;
  const double counted = kWholeWaves * std::ceil(waves) + (1 - kWholeWaves) * std::max(waves, 1.0);
  const double start = gpu.uses_tensor_cores(product.format) ? kTensorStart : kFloatStart;
  const double flops_of_tile =
      2 * tile.rows * tile.columns * (std::ceil(product.inner / parts) + start);
  const double rate = gpu.product_rate(product.format) * tile.efficiency *
                      alignment_factor(product, gpu) / gpu.multiprocessors;
  double seconds = std::max(counted, tile.saturation) * flops_of_tile / rate;
  if (parts > 1) {
    const double sums = 4 * product.batch * product.rows * product.columns * (parts + 1);
    seconds += sums / gpu.bytes_per_second + kSecondKernel;
  }
  return seconds;
}

double moving_seconds(const Product& product, const GpuSpeed& gpu) {
  const double numbers =
      product.batch * (product.rows * product.inner + product.inner * product.columns +
                       product.rows * product.columns);
  return numbers * bytes_per_number(product.format) / gpu.bytes_per_second;
}

}  // namespace

double seconds_of(const Product& product, const GpuSpeed& gpu) {
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles_of(product, gpu)) {
    const Tile turned = {tile.columns, tile.rows, tile.efficiency, tile.saturation};
    for (const double parts : {1.0, 2.0, 4.0, 8.0}) {
      const bool divides = parts > 1;
      if (divides && (product.batched || product.inner / parts < kLeastPart)) continue;
      least = std::min(
          {least, with_tile(product, tile, parts, gpu), with_tile(product, turned, parts, gpu)});
    }
  }
  return std::max(least, moving_seconds(product, gpu));
}

}  // namespace hasten::anatomy
