// File: optim/loss_scale.h (internal)
// The factor of a loss for training in float16, and the rule by which it changes. GradScaler and
// the Accelerator share it.
//
//   LossScale scale(GradScalerKwargs{});
//   scale.times(loss).backward();
//   const at::Tensor finite = scale.unscale(parameters);
//   scale.update(finite.item<bool>());
//
// The scale is a number on the host. A step reads whether the gradients are finite anyway, and a
// dry run, where tensors have no values, still knows the scale. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hasten/optim/grad_scaler.h"

namespace hasten {

class LossScale {
 public:
  // Throws ConfigError "optim.grad-scaler-option".
  explicit LossScale(const GradScalerKwargs& options);

  double value() const { return scale_; }
  // Throws ConfigError "optim.grad-scaler-option" unless it is a float above 0.
  void set(double scale);
  // The number of updates without a skipped step since the scale last changed.
  std::int64_t growth_tracker() const { return growth_tracker_; }
  void set_growth_tracker(std::int64_t updates) { growth_tracker_ = updates; }
  // Starts again with init_scale.
  void reset();
  const GradScalerKwargs& options() const { return options_; }
  // Throws as the constructor does. If it throws, nothing has changed.
  void set_options(const GradScalerKwargs& options);

  // Returns the loss times the scale. A loss of 16 bits is converted to float, because the product
  // might overflow.
  at::Tensor times(const at::Tensor& loss) const;
  // Divides the gradients of these parameters by the scale. Returns a tensor with one number, which
  // is true if all gradients were finite. Returns an undefined tensor if there are no gradients.
  // Throws UsageError "optim.fp16-gradient".
  at::Tensor unscale(const std::vector<at::Tensor>& parameters) const;
  // Changes the scale after a step, or after one that was skipped. Throws DivergedError
  // "optim.loss-scale".
  void update(bool finite);

 private:
  GradScalerKwargs options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
};

}  // namespace hasten
