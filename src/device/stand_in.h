// File: device/stand_in.h (internal)
// Answers in the place of NVML's while a dry run stands in for a GPU.
#pragma once

#include <cstdint>
#include <functional>

namespace hasten {

// Bytes of the GPU in use; empty: NVML is asked again. Thread rule: while no other thread asks.
void set_gpu_memory_stand_in(std::function<std::int64_t()> used);

}  // namespace hasten
