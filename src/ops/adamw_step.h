// File: ops/adamw_step.h (internal)
// AdamW's step (hasten/optim/adamw.h) as operators: `hasten::adamw` for dense gradients of many
// tensors at once, and `hasten::adamw_rows` for a table if the gradient has only some of its rows.
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

// Updates all parameters, which are CPU tensors in float or bfloat16. A parameter and its gradient
// have one type, and its two moments have one type. steps[i] counts from 1. seeds[i] is the seed of
// the parameter's random numbers for rounding. The four tensors of a parameter have the same
// strides, without gaps or overlaps. Like LibTorch's in-place operators, both functions increment
// the version counters of the tensors that they write.
void adamw(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::IntArrayRef steps, at::IntArrayRef seeds,
           const AdamWStep& step_options);

// A table is processed in blocks of rows of about 16 KiB. Returns bytes [blocks] for moments [rows,
// ...]. A byte is 0 if its block has never had a gradient: the moments are zero, and only weight
// decay applies. Without `is_new`, the byte is 1 if the moments have any number other than 0.
at::Tensor touched_blocks(const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, bool is_new);

// The table and its moments are contiguous. The gradient is `values` [used, ...] for the rows
// `rows` [used] int64, ascending and distinct; their blocks become touched.
void adamw_rows(const at::Tensor& parameter, const at::Tensor& rows, const at::Tensor& values,
                const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& touched,
                std::int64_t step, std::int64_t seed, const AdamWStep& step_options);

}  // namespace hasten::ops
