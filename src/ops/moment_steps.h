// File: ops/moment_steps.h (internal)
// AdamW's and Lion's steps with moments of 8 bits or in float, as operators:
// `hasten::adamw_moments` and `hasten::lion_moments` for dense gradients, many tensors at once, and
// `..._rows` for a table whose gradient has only some of its rows. The results have the same bits
// with every instruction set and any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/adamw_step.h"

namespace hasten::ops {

struct LionStep {
  double learning_rate, beta1, beta2, weight_decay;
};

// The moments of some parameters. A moment in float has an empty tensor of scales. A moment of 8
// bits has uint8 codes and a float scale for every 256 elements. Codes and scales of 0 mean a
// moment of 0.
struct Moments {
  std::vector<at::Tensor> numbers, scales;

  void add(const Moments& others) {
    numbers.insert(numbers.end(), others.numbers.begin(), others.numbers.end());
    scales.insert(scales.end(), others.scales.begin(), others.scales.end());
  }
};

// The number of scales of a moment of this many elements.
std::int64_t scale_count(std::int64_t elements);

// All tensors are contiguous CPU tensors. A parameter and its gradient have the same type, float or
// bfloat16. steps[i] counts from 1. All functions increment the version counters of the tensors
// that they write.
void adamw_moments(at::TensorList parameters, at::TensorList gradients, const Moments& exp_avgs,
                   const Moments& exp_avg_sqs, at::IntArrayRef steps,
                   const AdamWStep& step_options);
void lion_moments(at::TensorList parameters, at::TensorList gradients, const Moments& exp_avgs,
                  const LionStep& step_options);

// The same step for a table. Its gradient is `values` [used, ...], for the rows `rows` [used],
// which are int64, ascending and distinct. The moments belong to one parameter.
void adamw_moments_rows(const at::Tensor& parameter, const at::Tensor& rows,
                        const at::Tensor& values, const Moments& exp_avg, const Moments& exp_avg_sq,
                        std::int64_t step, const AdamWStep& step_options);
void lion_moments_rows(const at::Tensor& parameter, const at::Tensor& rows,
                       const at::Tensor& values, const Moments& exp_avg,
                       const LionStep& step_options);

}  // namespace hasten::ops
