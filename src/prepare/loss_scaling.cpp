#include "prepare/loss_scaling.h"

#include <torch/torch.h>

#include <sstream>

#include "hasten/optim/gradients.h"
#include "optim/distinct.h"

namespace hasten {
namespace {

// Multiplies the gradients that the other optimizers hold, and that this one does not step.
void rescale_held_gradients(const SyncedOptimizer& stepped, const LossScaling::Optimizers& all,
                            double factor) {
  TensorSet seen;
  distinct(stepped.parameters(), seen);
  for (const auto& other : all) {
    if (!other->is_unscaled) scale_gradients_(distinct(other->parameters(), seen), factor);
  }
}

// The next step must not use a factor that was meant for gradients which are skipped.
void forget_folded_scale(torch::optim::Optimizer& optimizer) {
  auto* const folding = dynamic_cast<ScalesGradients*>(&optimizer);
  if (folding == nullptr) return;
  folding->scale_next_step(1.0);
  folding->scale_next_step(at::Tensor());
}

}  // namespace

void LossScaling::unscale(SyncedOptimizer& optimizer) const {
  if (optimizer.is_unscaled) return;
  optimizer.finite = scale_.unscale(optimizer.parameters());
  optimizer.is_unscaled = true;
}

bool LossScaling::agree(const at::Tensor& finite, bool exchanges) const {
  if (group_.size() == 1 || !exchanges) return !finite.defined() || finite.item<bool>();
  const at::Tensor bad =
      finite.defined() ? finite.logical_not().to(at::kFloat).reshape({1}) : at::zeros({1});
  return group_.reduce(bad, Reduction::max).eq(0).item<bool>();
}

bool LossScaling::finish(SyncedOptimizer& optimizer, const Optimizers& all, bool exchanges) {
  unscale(optimizer);
  const bool finite = agree(optimizer.finite, exchanges);
  optimizer.step_was_skipped = !finite;
  if (!finite) {
    ++position_.skipped_steps;
    ++position_.skipped_since_log;
    forget_folded_scale(optimizer.optimizer());
  }
  const double before = value();
  scale_.update(finite);
  if (value() != before) rescale_held_gradients(optimizer, all, value() / before);
  optimizer.finite.reset();
  optimizer.is_unscaled = false;
  return finite;
}

LossScalePosition LossScaling::position() const {
  LossScalePosition position = position_;
  position.scale = value();
  position.growth_tracker = scale_.growth_tracker();
  return position;
}

void LossScaling::restore(const LossScalePosition& position) {
  scale_.set(position.scale);
  scale_.set_growth_tracker(position.growth_tracker);
  position_ = position;
}

void LossScaling::reset() {
  scale_.reset();
  position_ = {};
}

std::string LossScaling::state() const {
  std::ostringstream out;
  out.precision(17);
  out << value() << ' ' << scale_.growth_tracker() << ' ' << position_.skipped_steps << ' '
      << position_.skipped_since_log;
  return out.str();
}

void LossScaling::restore(const std::string& state) {
  LossScalePosition position;
  std::istringstream(state) >> position.scale >> position.growth_tracker >>
      position.skipped_steps >> position.skipped_since_log;
  restore(position);
}

}  // namespace hasten
