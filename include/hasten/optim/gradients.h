// File: hasten/optim/gradients.h
// The norm of all gradients together, and clipping by it.
//
//   double norm = gradient_norm(model->parameters());
//   clip_grad_norm_(model->parameters(), 1.0);           // gives the norm from before
//
// Dense and sparse gradients count alike; parameters without one are skipped, and one that is
// listed twice (LibTorch's parameters() lists a shared tensor under each of its names) counts once.
// Sums are in double; on a TPU in float, and there norm and factor stay on the device until they are
// read. Thread rule: reads and writes the gradients; one thread at a time. Source:
// torch.nn.utils.clip_grad_norm_ (factor max_norm / (norm + 1e-6), at most 1).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hasten/device/deferred_scalar.h"

namespace hasten {

// Something whose next step can multiply the gradients as it reads them.
class TakesGradientScale {
 public:
  virtual ~TakesGradientScale() = default;
  virtual void scale_next_step(double factor) = 0;
  // By a number that is on the device of the gradients.
  virtual void scale_next_step(const at::Tensor& factor) = 0;
};

// Whether numbers of a training step stay on that device until they are read: on a TPU, where
// reading waits for all that was asked before.
bool defers_reading(at::Device device);

// The p-norm of all gradients seen as one vector; `norm_type` may be infinity.
double gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type = 2.0);
// The same, where the gradients are: a tensor of one element.
at::Tensor gradient_norm_on_device(const std::vector<at::Tensor>& parameters,
                                   double norm_type = 2.0);
// What gradients of that norm are multiplied by to be at most max_norm; 1 where they are. NaN stays
// NaN.
double clip_factor(double norm, double max_norm);
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);
// Multiplies every gradient in place; nothing is read where the factor is 1.
void scale_gradients_(const std::vector<at::Tensor>& parameters, double factor);
void scale_gradients_(const std::vector<at::Tensor>& parameters, const at::Tensor& factor);
// Clips in place and gives the norm from before.
DeferredScalar clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                               double norm_type = 2.0);
// Bounds each element to [-clip_value, clip_value] in place.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace hasten
