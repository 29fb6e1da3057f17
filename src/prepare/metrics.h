// File: prepare/metrics.h (internal)
// Gathers the rows of a batch from all processes, without rows that only fill up a step, so that a
// metric counts each row of the dataset once. Accelerator::gather_for_metrics.
//
//   at::Tensor predictions = gather_for_metrics(logits.argmax(1), state);
//
// Every row is returned once, in the order of the dataset, for any length, batch size, number of
// processes and drop_last. Each process knows which of its rows are real, so nothing is guessed
// from lengths. Throws UsageError "prepare.not-rows" in every process if, in a step that is filled
// up, a tensor does not have one entry per row. A collective. If processes may have different
// numbers of batches (even_batches = false), call it inside join_uneven_inputs: processes that have
// finished take part without rows and get no result. Rank 0 never has fewer batches than another
// process. Thread rule: that of the group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hasten {

class AcceleratorState;

at::Tensor gather_for_metrics(const at::Tensor& tensor, AcceleratorState& state);

// The same call in a process that has no more data (hasten/prepare/detail/join.h). It takes part
// without rows. Rank `from` describes the tensor.
void gather_without_rows(const AcceleratorState& state, std::int64_t from);

}  // namespace hasten
