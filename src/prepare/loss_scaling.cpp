#include "prepare/loss_scaling.h"

#include <torch/torch.h>

#include <sstream>

#include "hasten/optim/gradients.h"
#include "optim/distinct.h"

namespace hasten {
namespace {

// Multiplies the gradients that the other optimizers hold and that this optimizer does not step.
void rescale_held_gradients(const SyncedOptimizer& stepped, const LossScaling::Optimizers& all,
                            double factor) {
  TensorSet seen;
  distinct(stepped.parameters(), seen);
  for (const auto& other : all) {
    if (!other->is_unscaled) scale_gradients_(distinct(other->parameters(), seen), factor);
  }
}

// Discards the factor of the skipped gradients, so that the next step does not use it.
void reset_folded_scale(torch::optim::Optimizer& optimizer) {
  auto* const folding = dynamic_cast<GradientScalingOptimizer*>(&optimizer);
  if (folding != nullptr) folding->scale_next_step(1.0);
}

}  // namespace

void LossScaling::unscale(SyncedOptimizer& optimizer) const {
  if (optimizer.is_unscaled) return;
  optimizer.finite = scale_.unscale(optimizer.parameters_with_unstepped());
  // If there are no gradients, nothing was divided, and gradients of a later backward pass still
  // must be.
  optimizer.is_unscaled = optimizer.finite.defined();
}

bool LossScaling::are_finite_on_all_ranks(const SyncedOptimizer& optimizer, bool exchanges) const {
  const at::Tensor& finite = optimizer.finite;
  if (group_.size() == 1 || !exchanges) return !finite.defined() || finite.item<bool>();
  // The ranks exchange a number on the device of the parameters. Ranks without gradients take part
  // too.
  const std::vector<at::Tensor> parameters = optimizer.parameters();
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters[0].device();
  const at::Tensor bad = finite.defined()
                             ? finite.logical_not().to(device, at::kFloat).reshape({1})
                             : at::zeros({1}, at::TensorOptions(device).dtype(at::kFloat));
  return group_.reduce(bad, Reduction::max).eq(0).item<bool>();
}

bool LossScaling::finish(SyncedOptimizer& optimizer, const Optimizers& all, bool exchanges) {
  unscale(optimizer);
  const bool finite = are_finite_on_all_ranks(optimizer, exchanges);
  optimizer.step_was_skipped = !finite;
  if (!finite) {
    ++skipped_steps_;
    reset_folded_scale(optimizer.optimizer());
  }
  const double before = value();
  scale_.update(finite);
  if (value() != before) rescale_held_gradients(optimizer, all, value() / before);
  optimizer.reset_unscaling();
  return finite;
}

LossScalePosition LossScaling::position() const {
  return {
      .scale = value(), .growth_tracker = scale_.growth_tracker(), .skipped_steps = skipped_steps_};
}

void LossScaling::restore(const LossScalePosition& position) {
  scale_.set(position.scale);
  scale_.set_growth_tracker(position.growth_tracker);
  skipped_steps_ = position.skipped_steps;
}

void LossScaling::reset() {
  scale_.reset();
  skipped_steps_ = 0;
}

std::string LossScaling::state() const {
  std::ostringstream out;
  out.precision(17);
  out << value() << ' ' << scale_.growth_tracker() << ' ' << skipped_steps_;
  return out.str();
}

void LossScaling::restore(const std::string& state) {
  LossScalePosition position;
  std::istringstream(state) >> position.scale >> position.growth_tracker >> position.skipped_steps;
  restore(position);
}

}  // namespace hasten
