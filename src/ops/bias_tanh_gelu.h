// File: ops/bias_tanh_gelu.h (internal)
// The approximation of GELU by tanh, which transformers calls gelu_new and gelu_pytorch_tanh, with
// a bias in one pass over memory. Only GPUs have a kernel for it.
//
//   if (fuses_bias_tanh_gelu(x, bias)) return bias_tanh_gelu(linear(x, weight, {}), bias);
//
// Thread rule: any thread.
#pragma once

#include "hasten/ops/ops.h"

namespace hasten::ops {

// Returns whether bias_tanh_gelu() has a kernel for products of x, on its device and in the type of
// the result of linear().
bool fuses_bias_tanh_gelu(const Tensor& x, const Tensor& bias);

// Returns gelu(x + bias) in the type of x. x [..., n] of float, bfloat16 or half; bias [n] float.
// Throws c10::Error for other sizes.
Tensor bias_tanh_gelu(const Tensor& x, const Tensor& bias);

}  // namespace hasten::ops
