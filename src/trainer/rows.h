// File: trainer/rows.h (internal)
// Rows of batches that several processes share. The last step is padded with rows that do not
// count.
//
//   RealRows real = real_rows(batch, info);
//   logits = narrow_rows(logits, real.count);
//
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hasten/data/detail/any_batch.h"
#include "hasten/data/detail/batch_info.h"

namespace hasten {

// The rows of a batch that count or, if none of them counts, one row that does not, because a model
// needs a row.
struct RealRows {
  AnyBatch batch;
  std::int64_t count;                         // the number of rows that count
  std::vector<std::int64_t> first_rows = {};  // BatchInfo::first_rows
};
RealRows real_rows(const AnyBatch& batch, const BatchInfo& info);

// Returns the first `count` rows of a batch.
RealRows first_rows(const RealRows& rows, std::int64_t count);

// Returns the first `count` rows of a tensor that has one row for each row of the batch.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t count);

}  // namespace hasten
