// File: launch/cuda_launch_device.h (internal)
// The processes of a launch on GPUs, their CUDA_VISIBLE_DEVICES, and the GPU of each of them
// (launch/launch_device.h).
//
//   const std::vector<int> gpus = gpus_of_processes(options, topology.gpu_nodes.size(), 4);
//
// Thread rule: that of LaunchDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/launch_options.h"
#include "launch/launch_device.h"

namespace hasten {

const LaunchDevice& cuda_launch_device();

// Returns each process's GPU by torchrun's rule: the visible GPU with the number of the local rank.
// `installed` is the number of GPUs of the machine. The result is empty if no GPU is visible, or if
// GPUs are given by name instead of number.
HASTEN_INTERNAL_API std::vector<int> gpus_of_processes(const LaunchOptions& options,
                                                       std::size_t installed, std::int64_t count);

}  // namespace hasten
