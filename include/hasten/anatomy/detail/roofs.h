// File: hasten/anatomy/detail/roofs.h
// Measures the highest rates of this machine, the roofs of a roofline model.
//
//   const anatomy::Roofs roofs = anatomy::measure_roofs();
//   roofs.flops_per_second / roofs.bytes_per_second;   // FLOP per byte at which the roofs meet
//
// Takes a third of a second and 256 MiB, and uses LibTorch's current number of threads. FLOP are
// measured with products of 1024 x 1024 matrices, in float by ops::linear and in 16 bits by
// LibTorch. Bytes are measured with a copy of 128 MiB, counted both as read and as written. Each
// rate is the median of the faster half of its runs. Thread rule: one call at a time, on an idle
// machine.
#pragma once

#include <string>

#include "hasten/base/detail/export.h"

namespace hasten::anatomy {

struct Roofs {
  double flops_per_second = 0;       // In float; 0 if not measured.
  double bf16_flops_per_second = 0;  // In bfloat16; 0 if not measured, or if this CPU emulates it.
  double fp16_flops_per_second = 0;  // In float16; 0 in the same cases.
  double tf32_flops_per_second = 0;  // Products of floats in TF32; 0 if they are computed in float.
  double bytes_per_second = 0;
  // "the data sheet of the H200" for the peaks of a GPU; empty: measured on this machine.
  std::string source = "";
};

HASTEN_API Roofs measure_roofs();

}  // namespace hasten::anatomy
