// File: ops/norm_gradients.h (internal)
// The gradients of normalizations, computed in float with LibTorch's operators, so that they can be
// differentiated again.
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
// Returns the gradients of a root-mean-square norm, which has no beta.
NormGradients rms_norm_gradients(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& gamma,
                                 double epsilon);

}  // namespace hasten::ops
