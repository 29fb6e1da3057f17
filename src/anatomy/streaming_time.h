// File: anatomy/streaming_time.h (internal)
// Predicts how long a GPU takes to move the data that an operator reads and writes.
//
//   streaming_seconds({.name = "aten::gelu", .shapes = shapes, .bytes = bytes}, speed);
//
// Most kernels stream their operands at the card's sustained rate. Some read them twice, load
// single numbers instead of 16 bytes at once, compute a lot for each number, or start again for
// each row. Such limits matter with fast memory: the limits below bind on an H200, but hardly on an
// A100.
//
// Units: seconds. Sources: NeuSight's data set for V100 and A100; calls and traces of steps on an
// H200 (benchmarks/results/gpu/h200-2026-11-26.jsonl, docs/gpu.md). Thread rule: pure functions.
#pragma once

#include <string_view>

#include "anatomy/call_time.h"

namespace hasten::anatomy {

// Returns the time without the start of the kernels.
double streaming_seconds(const OperatorCall& call, const GpuSpeed& gpu);

// Returns how many kernels an operator starts.
double kernel_count(std::string_view name);

}  // namespace hasten::anatomy
