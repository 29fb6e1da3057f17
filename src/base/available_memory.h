// File: base/available_memory.h (internal)
// The memory of the host that this process could still allocate without swapping: what the kernel
// reports as available, or less if the process's control group (a container) has a limit.
//
//   if (available_memory().value_or(0) / 2 >= bytes) copy(tensors);
//
// Thread rule: any thread. Throws nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "base/internal_api.h"

namespace hasten {

// Returns the number of bytes, or nothing if the system does not report it.
HASTEN_INTERNAL_API std::optional<std::uintmax_t> available_memory();

}  // namespace hasten
