// File: ops/product.h (internal)
// Matrix products by the library that is faster on this CPU, and sums of columns, below autograd.
//
//   const at::Tensor y = product(x, weight, bias);   // x [rows, in], weight [out, in]
//   const at::Tensor sums = column_sum(y);           // [out], float
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace hasten::ops {

// Returns a b^T + bias, for a [m, k] and b [n, k] of one type.
at::Tensor product(const at::Tensor& a, const at::Tensor& b,
                   const std::optional<at::Tensor>& bias = std::nullopt);

// Returns the column sums of a contiguous x [rows, columns]. On the CPU x is float or bfloat16. On
// a GPU for which hasten has its own kernels, it may also be half.
at::Tensor column_sum(const at::Tensor& x);

}  // namespace hasten::ops
