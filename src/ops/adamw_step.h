// AdamW's step (hasten/optim/adamw.h) as operators: `hasten::adamw` for dense gradients, many
// tensors at once, and `hasten::adamw_rows` for a table whose gradient has only some of its rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hasten::ops {

struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  // Multiplies gradients as they are read, for clipping.
  double gradient_scale;
  // Rounds numbers that are kept in bfloat16 stochastically (ops/kernels/kernels.h).
  bool stochastic_rounding = false;
};

struct AdamW;  // ops/kernels/kernels.h
// Returns what the kernels need to know about a parameter's step number `step`, which counts from
// 1.
AdamW kernel_options(const AdamWStep& step_options, std::int64_t step);

// CPU tensors in float or bfloat16: a parameter and its gradient have one type, and its two moments
// have one. steps[i] counts from 1; seeds[i] is that of the parameter's random numbers for
// rounding. The four tensors of a parameter have the same strides, without gaps or overlaps. Like
// LibTorch's in-place operators, both functions increment the version counters of what they write.
void adamw(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::IntArrayRef steps, at::IntArrayRef seeds,
           const AdamWStep& step_options);

// A table is processed in blocks of rows of about 16 KiB. The result, bytes [blocks] for moments
// [rows, ...], is 0 for blocks that have never had a gradient: their moments are zero, and only
// weight decay applies. Without `fresh`, a block is 1 if its moments contain any number but 0.
at::Tensor touched_blocks(const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, bool fresh);

// The table and its moments are contiguous. The gradient is `values` [used, ...] for the rows
// `rows` [used] int64, ascending and distinct; their blocks become touched.
void adamw_rows(const at::Tensor& parameter, const at::Tensor& rows, const at::Tensor& values,
                const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& touched,
                std::int64_t step, std::int64_t seed, const AdamWStep& step_options);

}  // namespace hasten::ops
