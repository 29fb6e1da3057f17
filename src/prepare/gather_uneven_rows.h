// File: prepare/gather_uneven_rows.h (internal)
// Gathers rows from all processes. Processes may have different numbers of rows, and some rows may
// not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hasten/process/group.h"

namespace hasten {

// Returns the first `real` rows of each process, in rank order. Returns nullopt in every process if
// any passes -1, which means unknown. A collective.
std::optional<at::Tensor> gather_uneven_rows(const at::Tensor& rows, std::int64_t real,
                                             const Group& group);

}  // namespace hasten
