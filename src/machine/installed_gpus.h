// File: machine/installed_gpus.h (internal)
// Lists the GPUs of this machine as the NVIDIA driver reports them, without loading a library.
//
//   config::installed_gpus().size();      // how many GPUs the driver has found
//
// Needs no torch. Thread rule: any thread. Only lack of memory makes it throw.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten::config {

// The model of each GPU, such as "NVIDIA H200", from the driver's list in /proc, in the driver's
// order; "" if the driver does not name it.
HASTEN_INTERNAL_API std::vector<std::string> installed_gpus();

}  // namespace hasten::config
