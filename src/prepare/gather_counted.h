// File: prepare/gather_counted.h (internal)
// Rows of all processes, where they have unequal numbers of them and not all may count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hasten/process/group.h"

namespace hasten {

// Of each process the first `real` rows, one rank's after the other's; nothing in all of them where
// one says -1, that it does not know. A collective.
std::optional<at::Tensor> gather_counted(const at::Tensor& rows, std::int64_t real,
                                         const Group& group);

}  // namespace hasten
