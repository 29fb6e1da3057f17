// File: device/cuda/nvml.h (internal)
// The memory of a GPU, as nvidia-smi shows it, and its compute capability. The figures come from
// NVML, which is loaded at run time, or from a dry run that simulates the GPU. If this process has
// used a GPU, CUDA's driver knows the capability, also on machines without NVML. Each `index`
// counts the visible GPUs, as in at::Device. Thread rule: any thread. Throws nothing.
#pragma once

#include "device/device.h"

namespace hasten {

MemoryFigures nvml_memory(int index);
// Returns 80 for 8.0, and 0 if the capability is not known.
int compute_capability(int index);

}  // namespace hasten
