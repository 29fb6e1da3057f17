// File: trainer/rows.h (internal)
// Rows of batches that several processes share. The last step is filled up with repeated rows that
// do not count.
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

// The rows of a batch that count. If none of them counts, the batch keeps all rows, because a model
// needs rows: a BatchNorm refuses to train on a single one.
struct RealRows {
  AnyBatch batch;
  std::int64_t count;                         // the number of rows that count
  std::int64_t rows;                          // the number of rows of `batch`
  std::vector<std::int64_t> first_rows = {};  // BatchInfo::first_rows
};
RealRows real_rows(const AnyBatch& batch, const BatchInfo& info);

// Returns the first `count` rows of a batch, whether or not they count.
RealRows first_rows(const RealRows& rows, std::int64_t count);

// Returns the first `count` rows of a tensor that has one row for each row of the batch.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t count);

}  // namespace hasten
