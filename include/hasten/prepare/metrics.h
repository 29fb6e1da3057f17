// File: hasten/prepare/metrics.h
// Rows of a batch from all processes, without those that are there only to fill up the last step:
// what a metric may count. Accelerator::gather_for_metrics.
//
// Every row comes once, in the order of the dataset, whatever its length, the batch size, the
// number of processes and drop_last; counting does not guess from lengths, as each process knows
// which of its rows are real. Throws UsageError "prepare.not-rows" in every process where in a
// last, filled up step a tensor has not one entry a row. A collective. Thread rule: as the group.
#pragma once

#include <ATen/core/Tensor.h>

#include "hasten/prepare/step.h"

namespace hasten {

at::Tensor gather_for_metrics(const at::Tensor& tensor, const Step& step);

}  // namespace hasten
