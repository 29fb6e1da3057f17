// File: anatomy/local_gpu.h (internal)
// Describes a GPU of this machine for a dry run that replaces it after memory has run out.
//
//   const DryRun dry(local_gpu(parameter.device()));
//
// The compute capability, by which LibTorch selects kernels, comes from the GPU if NVML knows it.
// The other figures come from a known GPU (hasten/machine/gpus.h): one with this capability or the
// next lower one, and with the most similar memory. The memory is unlimited: the dry run stops at
// the point where the step stopped. Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

Gpu local_gpu(at::Device device);

}  // namespace hasten::anatomy
