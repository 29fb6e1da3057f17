// File: ops/float_product.h (internal)
// Products of 16-bit numbers whose results are float, without a rounding to 16 bits in between.
// Only CUDA has them.
//
//   Tensor sum = float_product(a, b);   // a [m, k] and b [k, n] of bfloat16 or half; [m, n]
//   add_float_product(sum, c, d);       // adds c d in the same kernel
//
// Throws c10::Error if types do not fit. They compute no gradients. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace hasten::ops {

inline at::Tensor float_product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a, b, at::kFloat);
}

inline void add_float_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  at::addmm_out(sum, sum, a, b, at::kFloat);
}

}  // namespace hasten::ops
