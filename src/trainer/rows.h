// File: trainer/rows.h (internal)
// Rows of batches that several processes share: a last step is padded with rows that do not count,
// and processes may have rows of different lengths.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hasten/data/batch_info.h"
#include "hasten/formats/tensor_dict.h"
#include "hasten/process/group.h"

namespace hasten {

// The rows of a batch that count or, if none does, one that does not: a model needs a row.
struct RealRows {
  TensorDict batch;
  std::int64_t count;  // the number of rows that count
};
RealRows real_rows(const TensorDict& batch, const BatchInfo& info);

// Returns the rows that count of a tensor that has one for each row of the batch.
at::Tensor counted(const at::Tensor& rows, std::int64_t count);

// Returns the rows of all processes, in rank order, with the second dimension padded to one length
// with -100. A collective.
at::Tensor gather_rows(const Group& group, const at::Tensor& rows);

}  // namespace hasten
