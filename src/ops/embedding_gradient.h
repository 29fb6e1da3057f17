// File: ops/embedding_gradient.h (internal)
// The gradient of an embedding table on a device that has kernels for it. Their sums are in float
// and depend only on the ids, so that a step gives the same bits each time.
//
//   if (fuses_embedding_gradient(values)) table = embedding_gradient(values, ids, rows, padding_id);
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hasten::ops {

// Returns whether the device has kernels for these rows of the result's gradient.
bool fuses_embedding_gradient(const at::Tensor& values);

// Returns a table [rows, n] in which row i is the sum of the rows of `values` [tokens, n] whose id
// is i, and zeros for the id `skipped`. ids [...] int64, one for each token, in [0, rows).
at::Tensor embedding_gradient(const at::Tensor& values, const at::Tensor& ids, std::int64_t rows,
                              std::int64_t skipped);

}  // namespace hasten::ops
