// File: ops/gpu_linear.h (internal)
// A linear layer on a GPU. The backward pass computes the gradient of the weight directly in the
// type of the weight, and the host calls about half the number of operators that at::linear under
// autocast needs.
//
//   if (fits_gpu_linear(x, weight, bias)) return gpu_linear(x, weight, bias, transposed);
//
// Thread rule: any thread.
#pragma once

#include "hasten/ops/ops.h"

namespace hasten::ops {

// Returns whether the device of these tensors has kernels of hasten's own, their types and shapes
// are those of a linear layer, and gradients are recorded. The bias may be undefined.
bool fits_gpu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed);

// Returns x weight^T + bias for a weight [out, in], or x weight + bias for a transposed one [in,
// out], in the type of at::linear. x [..., in], bias [out] or undefined. Autocast's copies of
// weight and bias are used, so a weight is cast once in each region of autocast.
Tensor gpu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed);

}  // namespace hasten::ops
