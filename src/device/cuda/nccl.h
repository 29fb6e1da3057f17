// File: device/cuda/nccl.h (internal)
// c10d's NCCL backend for the tensors of a GPU, from the module libhasten_nccl.so next to
// libhasten. The module is built if CUDA's headers are installed and loaded if CUDA's libraries
// are. Without it, missing_reason() says what is missing. Thread rule: any thread.
#pragma once

#include "device/collective_backend.h"

namespace hasten {

// make() throws c10::Error if the module cannot be loaded or NCCL fails.
const CollectiveBackend& nccl();

}  // namespace hasten
