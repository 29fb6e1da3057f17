// File: hasten/optim/gradients.h
// The norm of all gradients together, and clipping by this norm.
//
//   double norm = gradient_norm(model->parameters());
//   clip_grad_norm_(model->parameters(), 1.0);  // returns the norm before clipping
//
// Dense and sparse gradients count equally. Parameters without a gradient are skipped, and a
// parameter that is listed twice (LibTorch's parameters() lists a shared tensor under each of its
// names) counts once. Sums are computed in double, except that the 2-norm of each single gradient
// on a GPU and all sums on a TPU are computed in float. On a GPU or a TPU, the norm and the factor
// stay on the device until they are read. A norm that is not finite does not throw; only LibTorch's
// own errors are thrown. Thread rule: these functions read and write the gradients; one thread at a
// time. Source: torch.nn.utils.clip_grad_norm_ (factor max_norm / (norm + 1e-6), at most 1).
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/device/detail/deferred_scalar.h"

namespace hasten {

// A factor for gradients: a number on the host, or, if `on_device` is defined, a single number on
// the device of the gradients.
struct GradientScale {
  double number = 1;
  at::Tensor on_device = {};

  // Returns the factor. Waits for the device if the factor is there.
  double read() const { return on_device.defined() ? on_device.item<double>() : number; }
};

// An optimizer whose next step can multiply the gradients as it reads them.
class HASTEN_API GradientScalingOptimizer {
 public:
  virtual ~GradientScalingOptimizer() = default;
  // Makes the next step multiply each gradient by this factor as it reads it, which clips without a
  // separate pass over memory. The last call before the step takes effect.
  void scale_next_step(double factor) { scale_ = {.number = factor}; }
  void scale_next_step(const at::Tensor& factor) { scale_ = {.on_device = factor}; }
  void scale_next_step(GradientScale scale) { scale_ = std::move(scale); }
  // Returns the factor of the next step; 1 after each step.
  const GradientScale& scale_of_next_step() const { return scale_; }

 private:
  GradientScale scale_;
};

// The p-norm of all gradients as one vector; `norm_type` is p and may be infinity.
HASTEN_API double gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type = 2.0);
// The same as a tensor of one element on the device of the gradients.
HASTEN_API at::Tensor gradient_norm_on_device(const std::vector<at::Tensor>& parameters,
                                              double norm_type = 2.0);
// The factor that brings gradients of this norm down to max_norm; 1 if they need none. It is NaN
// for a norm of NaN.
HASTEN_API double clip_factor(double norm, double max_norm);
// The same on the device of the norm, in float.
HASTEN_API at::Tensor clip_factor(const at::Tensor& norm, double max_norm);
// Multiplies every gradient, dense ones in place. A factor of 1 touches nothing.
HASTEN_API void scale_gradients_(const std::vector<at::Tensor>& parameters, double factor);
// The same with a factor on the device of the gradients.
HASTEN_API void scale_gradients_(const std::vector<at::Tensor>& parameters,
                                 const at::Tensor& factor);
// Clips the gradients, dense ones in place, to max_norm and returns the norm before clipping.
HASTEN_API DeferredScalar clip_grad_norm_(const std::vector<at::Tensor>& parameters,
                                          double max_norm, double norm_type = 2.0);
// Limits each element of the gradients to [-clip_value, clip_value], dense ones in place.
HASTEN_API void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace hasten
