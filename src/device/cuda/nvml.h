// File: device/cuda/nvml.h (internal)
// The memory of a GPU, as nvidia-smi shows it: by NVML, which is loaded at run time, or by a dry
// run that simulates the GPU. Thread rule: any thread. Throws nothing.
#pragma once

#include "device/device.h"

namespace hasten {

MemoryFigures nvml_memory(int index);

}  // namespace hasten
