// File: hasten/optim/grad_scaler.h
// Scales losses for training in float16, whose smallest positive number is 6e-8: gradients below it
// would become 0. An Accelerator with Precision::fp16 has a scaler of its own; this class is for a
// plain loop.
//
//   hasten::GradScaler scaler;
//   at::Tensor loss;
//   {
//     const hasten::AutocastGuard guard(hasten::Precision::fp16, at::kCPU);
//     loss = loss_of(model->forward(ids));  // products in float16, the loss in float
//   }
//   scaler.scale(loss).backward();
//   scaler.unscale_(adamw);             // before gradients are clipped or read
//   hasten::clip_grad_norm_(model->parameters(), 1.0);
//   const bool made = scaler.step(adamw);  // no step if a gradient is infinite or NaN
//   scaler.update();
//   adamw.zero_grad();
//
// The scale starts at 65536. update() multiplies it by backoff_factor if a step since the last
// update() was skipped, and by growth_factor after growth_interval updates without a skipped step.
// Weights stay in float: float16 gradients are rejected. Sparse gradients keep their layout. With
// several optimizers, call step() for each and then update() once.
//
// Throws ConfigError "optim.grad-scaler-option" for an option or a scale out of its range;
// UsageError "optim.grad-scaler" for calls in the wrong order, "optim.fp16-gradient"; DataError
// "optim.grad-scaler-state"; DivergedError "optim.loss-scale" if the scale falls below min_scale.
// Thread rule: one thread at a time. Source: torch.amp.GradScaler, with its names, defaults and
// numbers; only min_scale is hasten's own, and step() returns whether it has made a step.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// The names and defaults match Accelerate's GradScalerKwargs.
struct GradScalerKwargs {
  double init_scale = 65536;
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // above 0 and below 1
  std::int64_t growth_interval = 2000;
  bool enabled = true;
  // The smallest scale. The run ends if the loss still overflows at this scale. 0 means no limit,
  // as in PyTorch; such a run would then skip every further step. Accelerate has no such option.
  double min_scale = 1e-4;
};

class LossScale;

class HASTEN_API GradScaler {
 public:
  explicit GradScaler(const GradScalerKwargs& options = {});
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;
  ~GradScaler();

  // Returns the loss times the scale, in float if the loss has 16 bits.
  at::Tensor scale(const at::Tensor& loss) const;
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& losses) const;
  // Divides the optimizer's gradients by the scale, once between two calls of update().
  void unscale_(torch::optim::Optimizer& optimizer);
  // Divides the gradients unless unscale_() has done so, and makes a step if all of them are
  // finite. Returns true if it has made a step.
  bool step(torch::optim::Optimizer& optimizer);
  // Changes the scale according to the steps since the last update(), or sets it to `new_scale`.
  void update(std::optional<double> new_scale = std::nullopt);

  // 1 if the scaler is not enabled.
  double get_scale() const;
  double get_growth_factor() const;
  void set_growth_factor(double factor);
  double get_backoff_factor() const;
  void set_backoff_factor(double factor);
  std::int64_t get_growth_interval() const;
  void set_growth_interval(std::int64_t interval);
  bool is_enabled() const;

  // The scale, the three numbers above and the updates since the scale last changed
  // ("_growth_tracker"), each a tensor of one number; empty if the scaler is not enabled.
  // accelerator.register_for_checkpointing(scaler) saves them in checkpoints.
  TensorDict state_dict() const;
  // Changes nothing if a number is missing or out of its range.
  void load_state_dict(const TensorDict& state);

 private:
  // The events of an optimizer since the last update().
  struct OptimizerRecord {
    at::Tensor finite;  // whether all gradients were finite when they were divided
    bool is_unscaled = false, has_stepped = false;
  };

  std::unique_ptr<LossScale> scale_;
  std::map<const torch::optim::Optimizer*, OptimizerRecord> records_;
};

}  // namespace hasten
