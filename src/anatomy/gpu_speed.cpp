#include "anatomy/gpu_speed.h"

#include <array>

namespace hasten::anatomy {
namespace {

// The shares of its peaks that a card sustains; 0 if it has no tensor cores for the format.
struct SustainedShares {
  std::string_view gpu;
  double float32 = 0, tf32 = 0, bfloat16 = 0, float16 = 0, bandwidth = 0;
};

// The shares of products are measured TFLOP/s from public collections divided by the peaks of
// gpus(); docs/gpu.md lists each figure with its source. The shares of bandwidth are fitted on V100
// and A100 (HBM) and on T4 (GDDR6); cards with the same kind of memory have the same share. The
// 16-bit shares of the H200 are fitted to products of 5 to 500 us on an H200
// (h200-2026-11-26.jsonl), and the model counts the start of tiles separately. The H100 has the
// same multiprocessors, and its shares in the collections are 0.9 % higher.
constexpr double kHbm = 0.90, kGddr = 0.78, kGddrX = 0.90;
constexpr std::array<SustainedShares, 17> kShares = {{
    {"t4", 0.50, 0, 0, 0.38, 0.76},
    {"v100-16gb", 0.87, 0, 0, 0.73, kHbm},
    {"v100-32gb", 0.87, 0, 0, 0.70, kHbm},
    {"rtx3090", 0.68, 0.96, 1.04, 1.03, kGddrX},
    {"rtx4090", 0.65, 1.01, 0.98, 0.98, kGddrX},
    {"rtx6000ada", 0.50, 0.70, 0.70, 0.70, 0.85},
    {"a10", 0.45, 0.45, 0.45, 0.43, kGddr},
    {"a10g", 0.45, 0.80, 0.80, 0.78, kGddr},
    {"l4", 0.377, 0.42, 0.47, 0.44, kGddr},
    {"l40s", 0.50, 0.70, 0.72, 0.71, 0.85},
    {"a100-40gb", 0.868, 0.66, 0.71, 0.69, kHbm},
    {"a100-80gb", 0.955, 0.80, 0.82, 0.80, kHbm},
    {"h100-80gb", 0.764, 0.775, 0.817, 0.777, kHbm},
    {"h100-nvl", 0.74, 0.70, 0.70, 0.66, kHbm},
    {"h200", 0.757, 0.775, 0.810, 0.770, kHbm},
    {"gh200", 0.764, 0.79, 0.81, 0.77, kHbm},
    {"b200", 0.81, 0.72, 0.72, 0.70, kHbm},
}};

}  // namespace

double GpuSpeed::product_rate(NumberFormat format) const {
  const double tensor_rate = format == NumberFormat::tf32       ? tf32_products
                             : format == NumberFormat::bfloat16 ? bfloat16_products
                             : format == NumberFormat::float16  ? float16_products
                                                                : 0;
  return tensor_rate > 0 ? tensor_rate : float32_products;
}

bool GpuSpeed::uses_tensor_cores(NumberFormat format) const {
  return format != NumberFormat::float32 && product_rate(format) != float32_products;
}

GpuSpeed speed_of(const Gpu& gpu) {
  SustainedShares shares{gpu.name, 0.7, 0.7, 0.7, 0.7, kHbm};
  for (const SustainedShares& each : kShares) {
    if (each.gpu == gpu.name) shares = each;
  }
  return {.compute_capability = gpu.compute_capability,
          .multiprocessors = gpu.multiprocessors,
          .float32_products = shares.float32 * gpu.flops_per_second,
          .tf32_products = shares.tf32 * gpu.tf32_flops_per_second,
          .bfloat16_products = shares.bfloat16 * gpu.bf16_flops_per_second,
          .float16_products = shares.float16 * gpu.fp16_flops_per_second,
          .bytes_per_second = shares.bandwidth * gpu.bytes_per_second};
}

}  // namespace hasten::anatomy
