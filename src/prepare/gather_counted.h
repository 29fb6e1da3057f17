// File: prepare/gather_counted.h (internal)
// Gathers the rows of all processes if their numbers differ and not all rows may count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hasten/process/group.h"

namespace hasten {

// Returns the first `real` rows of each process, in the order of the ranks, or nullopt in every
// process if one passes -1 because it does not know its number. A collective.
std::optional<at::Tensor> gather_counted(const at::Tensor& rows, std::int64_t real,
                                         const Group& group);

}  // namespace hasten
