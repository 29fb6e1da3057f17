// AdamW's pass over memory (hasten/optim/adamw.h) as operators: `hasten::adamw` for dense
// gradients, many tensors at once, and `hasten::adamw_rows` for a table whose gradient reaches some
// of its rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hasten::ops {

struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double gradient_scale;  // gradients are multiplied by this as they are read (clipping)
};

// Float CPU tensors; steps[i] counts from 1. The four tensors of a parameter have the same strides,
// without gaps or overlaps. Like LibTorch's in-place operators, both functions raise the version
// counters of what they write to.
void adamw(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::IntArrayRef steps, const AdamWStep& how);

// A table is worked on in blocks of rows, some 16 KiB each; touched[block] is 0 where no gradient
// has ever been, so that its moments are zero and only decay is to be done. Bytes [blocks] for
// moments [rows, ...]: of a checkpoint's moments a block counts if it holds any number but 0.
at::Tensor touched_blocks(const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, bool fresh);

// The table and its moments are contiguous; the gradient is `values` [used, ...] in the rows `rows` [used] int64, ascending and distinct.
void adamw_rows(const at::Tensor& parameter, const at::Tensor& rows, const at::Tensor& values,
                const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& touched,
                std::int64_t step, const AdamWStep& how);

}  // namespace hasten::ops
