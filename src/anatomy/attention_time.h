// File: anatomy/attention_time.h (internal)
// Predicts how long a GPU takes for attention in one kernel.
//
//   if (const auto seconds = attention_seconds(call, speed)) ...
//
// The kernel computes its products at a share of the rate of matrix products. Dropout takes
// additional time: the tensor cores wait while a random number is computed for each score.
//
// Units: seconds. Sources: the papers of FlashAttention-2 and FlashAttention-3, and for Hopper
// benchmarks/results/gpu/h200-2026-11-26.jsonl (docs/gpu.md). Thread rule: pure functions.
#pragma once

#include <optional>

#include "anatomy/call_time.h"

namespace hasten::anatomy {

// Returns the time of the arithmetic, without the start of the kernels. Returns nullopt if the call
// is not attention in one kernel.
std::optional<double> attention_seconds(const OperatorCall& call, const GpuSpeed& gpu);

}  // namespace hasten::anatomy
