// File: machine/installed_devices.h (internal)
// Returns for how many devices of this machine a launch starts a process each.
//
//   config::installed_devices();     // 8: eight GPUs, or if there are none, eight TPU chips
//
// Needs no torch. Thread rule: any thread. It throws only if memory runs out.
#pragma once

#include <cstdint>

namespace hasten::config {

// Returns the number of GPUs that CUDA_VISIBLE_DEVICES leaves, or if there are none, the number of
// devices of another kind. 0 if the machine has only its CPU.
std::int64_t installed_devices();

}  // namespace hasten::config
