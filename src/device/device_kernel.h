// File: device/device_kernel.h (internal)
// Kernels of hasten's own that a device may have besides those of Device::has_row_kernels(), which are
// asked for one by one.
//
//   if (device_of(x.device()).has_kernel(DeviceKernel::softmax_dropout, x.scalar_type())) ...
//
// Thread rule: values.
#pragma once

namespace hasten {

enum class DeviceKernel {
  dropout_add_pre_norm,  // ops::dropout_add_pre_norm and its backward pass
  softmax_dropout,       // the softmax and the dropout of ops::eager_attention
  embedding_gradient,    // the gradients of the tables of ops::embedding_sum
  linear,                // ops::linear with gradients of weights in float from their product
  column_sum,            // the gradients of the biases of ops::linear
  bias_tanh_gelu,        // ops::bias_tanh_gelu and its backward pass
  weight_gradient_sum,   // the sum of a weight's gradients in products of ops::linear_cross_entropy
};

}  // namespace hasten
