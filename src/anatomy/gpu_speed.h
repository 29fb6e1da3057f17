// File: anatomy/gpu_speed.h (internal)
// The rates that a GPU sustains in large matrix products and in kernels that stream their operands.
// They are below the peaks of hasten/machine/gpus.h, because a card lowers its clock at its power
// limit and because no kernel issues a product in every cycle.
//
//   const GpuSpeed speed = speed_of(find_gpu("cuda:h200"));
//   speed.product_rate(NumberFormat::bfloat16);   // 801e12
//
// Units: FLOP per second, bytes per second. Sources: docs/gpu.md, "Rates". Thread rule: pure
// functions.
#pragma once

#include "base/internal_api.h"
#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

// The format of a product's factors. Sums are always in float.
enum class NumberFormat { float32, tf32, bfloat16, float16 };

struct GpuSpeed {
  int compute_capability = 0, multiprocessors = 0;
  double float32_products = 0, tf32_products = 0, bfloat16_products = 0, float16_products = 0;
  double bytes_per_second = 0;

  // Returns the rate of products of a format. If the GPU has no tensor cores for the format, this
  // is the rate of float.
  double product_rate(NumberFormat format) const;
  // True if tensor cores compute the products.
  bool uses_tensor_cores(NumberFormat format) const;
};

// Returns the rates of a known GPU. A GPU without measured rates has the rates of the nearest card
// that has them, scaled by its peaks.
HASTEN_INTERNAL_API GpuSpeed speed_of(const Gpu& gpu);

}  // namespace hasten::anatomy
