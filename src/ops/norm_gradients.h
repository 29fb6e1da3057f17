// File: ops/norm_gradients.h (internal)
// The gradients of normalizations with LibTorch's operators, in float, which can be differentiated again.
//
//   const NormGradients of = layer_norm_gradients(dy, z, gamma, epsilon);    // of.z, of.gamma, of.beta
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten::ops {

struct NormGradients {
  at::Tensor z, gamma, beta;
};

NormGradients layer_norm_gradients(const at::Tensor& dy, const at::Tensor& z,
                                   const at::Tensor& gamma, double epsilon);
// Those of a division by the root mean square, which has no beta.
NormGradients rms_norm_gradients(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& gamma,
                                 double epsilon);

}  // namespace hasten::ops
