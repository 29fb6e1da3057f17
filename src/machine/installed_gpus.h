// File: machine/installed_gpus.h (internal)
// Lists the GPUs of this machine as the NVIDIA driver reports them, without loading a library.
//
//   config::installed_gpus().size();      // how many GPUs the driver has found
//
// Needs no torch. Thread rule: any thread. It throws only if memory runs out.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten::config {

// Returns the model of each GPU, such as "NVIDIA H200", from the driver's list in /proc, in the
// driver's order. A model that the driver does not name is "".
HASTEN_INTERNAL_API std::vector<std::string> installed_gpus();

}  // namespace hasten::config
