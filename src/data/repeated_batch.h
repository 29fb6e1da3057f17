// File: data/repeated_batch.h (internal)
// Batches of a step that a device graph repeats. The graph reads the memory of the batch that was
// recorded, so each later batch of the same shape is copied into that memory.
//
//   const std::string reason = unrepeatable_batch(batch, unknown_class(model));
//   if (!reason.empty()) return stop(reason);
//   const std::string shape = shape_of_step({batch});
//   AnyBatch recorded = with_own_memory(batch);
//   overwrite(recorded, next_batch_of_this_shape);
//
// Throws nothing. Thread rule: that of the batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/data/detail/any_batch.h"

namespace hasten {

// Returns why a graph cannot repeat a step with this batch, or an empty string if it can. All
// values of the batch must be in tensors whose memory can be overwritten. The bounds of packed rows
// are also in host memory, and a graph would keep the bounds of its recording. hasten's models read
// only the longest row there. `unknown_class` names a class of the model that may read more, or is
// empty.
std::string unrepeatable_batch(AnyBatch batch, const std::string& unknown_class);

// Returns a text that is equal for two steps if a graph of one can repeat the other: the names,
// types, sizes and devices of the tensors of each micro-batch. For packed batches it has the most
// tokens of a row, rounded up.
std::string shape_of_step(const std::vector<AnyBatch>& micro_batches);

// Returns the number of elements of the largest tensor of a step: the number of tokens or pixels.
std::int64_t size_of_step(const std::vector<AnyBatch>& micro_batches);

// Returns a copy of the batch in memory that no other tensor uses. If rows are packed, the copy of
// their bounds in host memory becomes longest_bounds() (data/static_packed_rows.h), because a graph
// keeps what the host reads while it is recorded.
AnyBatch with_own_memory(const AnyBatch& batch);

// Copies the tensors of `from` into those of `to`, which has the same shape.
void overwrite(AnyBatch to, AnyBatch from);

}  // namespace hasten
