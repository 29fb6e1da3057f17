// File: anatomy/local_gpu.h (internal)
// Describes a GPU of this machine: for a dry run that replaces it after memory has run out, and for
// the roofs of a report.
//
//   const DryRun dry(local_gpu(parameter.device()));
//   if (const Gpu* const gpu = known_gpu(device)) return gpu->flops_per_second;
//
// For a dry run, the compute capability, by which LibTorch selects kernels, comes from the GPU if
// it is known. The other figures come from a known GPU (hasten/machine/gpus.h): one with this
// capability or the next lower one, and with the most similar memory. The memory is unlimited: the
// dry run stops at the point where the step stopped. Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

Gpu local_gpu(at::Device device);

// Returns the GPU that a dry run simulates, or the known GPU that the device is. Null if there is
// none.
const Gpu* known_gpu(at::Device device);

}  // namespace hasten::anatomy
