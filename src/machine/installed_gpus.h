// File: machine/installed_gpus.h (internal)
// Lists the GPUs of this machine as the NVIDIA driver reports them, without loading a library, and
// those that a process may use.
//
//   config::installed_gpus().size();      // how many GPUs the driver has found
//   config::visible_gpus().size();        // how many of them CUDA_VISIBLE_DEVICES leaves
//
// Needs no torch. Thread rule: any thread. It throws only if memory runs out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten::config {

// The variable that says which GPUs CUDA shows to a process.
inline constexpr const char* kVisibleGpusVariable = "CUDA_VISIBLE_DEVICES";

// Returns the model of each GPU, such as "NVIDIA H200", from the driver's list in /proc, in the
// driver's order. A model that the driver does not name is "".
HASTEN_INTERNAL_API std::vector<std::string> installed_gpus();

// Returns the GPUs that CUDA shows to a process with this value of CUDA_VISIBLE_DEVICES, on a
// machine with this many GPUs: their numbers, or the names that the value has (GPU-8932f937).
// Without the variable (nullptr) these are all GPUs, and with an empty one there are none. As in
// CUDA, the first entry that is no GPU ends the list.
HASTEN_INTERNAL_API std::vector<std::string> visible_gpus(const char* variable,
                                                          std::size_t installed);
// Returns those of this process.
HASTEN_INTERNAL_API std::vector<std::string> visible_gpus();

}  // namespace hasten::config
