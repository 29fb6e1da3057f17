// File: data/static_packed_rows.h (internal)
// Pads packed batches (hasten/data/detail/packed_rows.h) to a few numbers of tokens, so that a few
// graphs repeat the steps of all batches.
//
//   TensorDict padded = with_static_packed_rows(packed);  // 64 rows of 4,500 tokens become 4,608
//
// The added tokens are kFillerRows rows of their own, which no other row attends to, with labels of
// -100. So losses do not change. There are eight numbers of tokens per doubling for batches of 24
// rows or more, and four for smaller batches, whose numbers of tokens vary more. On average 6 % or
// 12 % of a batch are added. With rows of random lengths, 8 graphs suffice for 98 % of the batches
// of 8 rows or more.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// The number of rows that consist of added tokens. With several rows they are short, so that their
// attention costs little.
inline constexpr std::int64_t kFillerRows = 8;

// Returns the batch with added tokens. Returns it unchanged if it is not packed, if its bounds are
// not in host memory, or if the labels cannot mark what is added: there are no integer labels, one
// per token or per row, or a column is unknown, which may hold labels, too.
TensorDict with_static_packed_rows(const TensorDict& batch, const std::string& labels = "labels");

// Returns the bounds of the rows in host memory, or an undefined tensor if the batch is not packed
// or has them only on another device.
at::Tensor packed_rows_on_host(const TensorDict& batch);
// Returns the same if the bounds are int32 [rows + 1], as the other functions here need them, and
// otherwise an undefined tensor.
at::Tensor int32_rows_on_host(const TensorDict& batch);

// Returns the length that no row of such batches exceeds: the longest row, rounded up. A batch with
// these bounds and another one have equal limits if their shapes are equal and their longest rows
// are similar.
std::int64_t row_limit(const at::Tensor& bounds);

// Returns bounds of as many rows and tokens, whose longest row has row_limit(bounds) tokens if
// there are so many. Attention takes the length of the longest row from the host when a graph is
// recorded, so the graph has to be recorded with one that is long enough for all batches.
at::Tensor longest_bounds(const at::Tensor& bounds);

}  // namespace hasten
