// File: device/stand_in.h (internal)
// Replaces NVML's answers while a dry run simulates a GPU.
#pragma once

#include <cstdint>
#include <functional>

namespace hasten {

struct GpuStandIn {
  std::function<std::int64_t()> used;  // gives the bytes in use; empty: NVML is asked
  std::int64_t total = 0;
};

// Thread rule: while no other thread asks for a GPU's memory.
void set_gpu_stand_in(GpuStandIn gpu);

}  // namespace hasten
