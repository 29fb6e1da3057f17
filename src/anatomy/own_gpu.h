// File: anatomy/own_gpu.h (internal)
// Describes a GPU of this machine for a dry run, which takes its place after memory has run out.
//
//   const DryRun dry(own_gpu(parameter.device()));
//
// The compute capability, by which LibTorch selects kernels, is that of the GPU if NVML knows it.
// The other figures are those of the known GPU (hasten/machine/gpus.h) with this capability, or
// with the next lower one, whose memory is nearest. The memory is unlimited: the dry run stops
// where the step stopped. Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

Gpu own_gpu(at::Device device);

}  // namespace hasten::anatomy
