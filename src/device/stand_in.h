// File: device/stand_in.h (internal)
// Answers in the place of NVML's while a dry run stands in for a GPU.
#pragma once

#include <cstdint>
#include <functional>

namespace hasten {

struct GpuStandIn {
  std::function<std::int64_t()> used;  // bytes; empty: NVML is asked
  std::int64_t total = 0;
};

// Thread rule: while no other thread asks.
void set_gpu_stand_in(GpuStandIn gpu);

}  // namespace hasten
