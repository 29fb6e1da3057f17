// File: trainer/rows.h (internal)
// Rows of batches that several processes share: a last step is filled up with rows that count
// nothing, and processes have rows of unequal length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hasten/data/loader.h"
#include "hasten/formats/tensor_dict.h"
#include "hasten/process/group.h"

namespace hasten {

// The rows of the loader's batch at hand that count, or one that does not where none does: a model
// needs a row.
struct RealRows {
  TensorDict batch;
  std::int64_t count;  // of them that count
};
RealRows real_rows(const Loader<TensorDict>& loader, const TensorDict& batch);

// Of a tensor with a row for each row of the batch, those that count.
at::Tensor counted(const at::Tensor& rows, std::int64_t count);

// The rows of all processes, one rank's after the other's; where their second dimension differs
// they are filled with -100 behind. A collective.
at::Tensor gather_rows(const Group& group, const at::Tensor& rows);

}  // namespace hasten
