// File: anatomy/shape_rule_helpers.h (internal)
// Helpers of the shape rules, for all devices and for GPUs. Their tensors are on the Meta device.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace hasten::anatomy {

using at::Tensor;
using Arguments = const std::vector<c10::IValue>&;
using Results = std::vector<c10::IValue>;

inline Tensor tensor(Arguments a, std::size_t i) {
  return a[i].isNone() ? Tensor() : a[i].toTensor();
}

// Returns a tensor with the shape and memory order of x [batch, heads, length, size]. It goes
// through the view with the length before the heads.
inline Tensor empty_with_order_of(const Tensor& x) {
  return at::empty_like(x.transpose(1, 2)).transpose(1, 2);
}

// Returns the gradients of q, k and v, which are arguments 1 to 3.
inline Results flash_attention_backward(Arguments a) {
  return {empty_with_order_of(tensor(a, 1)), empty_with_order_of(tensor(a, 2)),
          empty_with_order_of(tensor(a, 3))};
}

}  // namespace hasten::anatomy
