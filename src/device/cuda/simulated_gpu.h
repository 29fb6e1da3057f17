// File: device/cuda/simulated_gpu.h (internal)
// Replaces NVML's answers while a dry run simulates a GPU.
#pragma once

#include <cstdint>
#include <functional>

namespace hasten {

struct SimulatedGpuMemory {
  std::function<std::int64_t()> used;  // gives the bytes in use; empty: NVML is asked
  std::int64_t total = 0;
};

// Thread rule: while no other thread asks for a GPU's memory.
void set_simulated_gpu_memory(SimulatedGpuMemory gpu);

}  // namespace hasten
