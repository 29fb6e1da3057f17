// File: hasten/optim/gradients.h
// The norm of all gradients together, and clipping by it.
//
//   double norm = gradient_norm(model->parameters());
//   clip_grad_norm_(model->parameters(), 1.0);           // gives the norm from before
//
// Dense and sparse gradients count alike; parameters without one are skipped. Sums are in double.
// Thread rule: reads and writes the gradients; one thread at a time.
// Source: torch.nn.utils.clip_grad_norm_ (factor max_norm / (norm + 1e-6), at most 1).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace hasten {

// Something whose next step can multiply the gradients as it reads them.
class TakesGradientScale {
 public:
  virtual ~TakesGradientScale() = default;
  virtual void scale_next_step(double factor) = 0;
};

// The p-norm of all gradients seen as one vector; `norm_type` may be infinity.
double gradient_norm(const std::vector<at::Tensor>& parameters, double norm_type = 2.0);
// What gradients of that norm are multiplied by to be at most max_norm; 1 where they are. NaN stays
// NaN.
double clip_factor(double norm, double max_norm);
// Multiplies every gradient in place; nothing is read where the factor is 1.
void scale_gradients_(const std::vector<at::Tensor>& parameters, double factor);
// Clips in place and gives the norm from before.
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                       double norm_type = 2.0);
// Bounds each element to [-clip_value, clip_value] in place.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace hasten
