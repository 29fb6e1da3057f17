// File: hasten/config/installed_gpus.h
// The GPUs of this machine as its driver lists them, without asking any library.
//
//   config::installed_gpus().size()      // how many the NVIDIA driver has found
//
// Needs no torch, and loads nothing. Thread rule: any thread. Nothing throws but for lack of
// memory.
#pragma once

#include <string>
#include <vector>

namespace hasten::config {

// The model of each GPU, "NVIDIA H200", from the driver's own list in /proc; "" where it does not
// say.
std::vector<std::string> installed_gpus();

}  // namespace hasten::config
