// File: hasten/prepare/metrics.h
// Rows of a batch from all processes, without those that are there only to fill up the last step:
// what a metric may count. Accelerator::gather_for_metrics.
//
// Every row comes once, in the order of the dataset, whatever its length, the batch size, the
// number of processes and drop_last; counting does not guess from lengths, as each process knows
// which of its rows are real. Throws UsageError "prepare.not-rows" in every process where in a
// last, filled up step a tensor has not one entry a row. A collective. Where processes may have
// another number of batches (even_batches = false), call it inside of join_uneven_inputs: those
// that are through take part without rows and have no result; rank 0 always has one more, or as
// many. Thread rule: as the group.
#pragma once

#include <ATen/core/Tensor.h>

#include "hasten/prepare/step.h"

namespace hasten {

at::Tensor gather_for_metrics(const at::Tensor& tensor, Step& step);

// The same in a process that has no more data (hasten/prepare/join.h): takes part without a row;
// rank `from` tells in what.
void gather_no_rows(const Step& step, std::int64_t from);

}  // namespace hasten
