// File: prepare/loss_scaling.h (internal)
// The scale of the losses of one Accelerator with Precision::fp16, and the steps that it skips.
//
//   pass.scale = scaling.value();
//   scaling.unscale(*optimizer);                    // perhaps: before gradients are clipped
//   if (scaling.finish(*optimizer, others, true)) optimizer->optimizer().step();
//
// Gradients are divided by the scale once for each optimizer and step, when its window is closed.
// All ranks make the same decision whether to skip a step. They exchange one number or, inside
// join_uneven_inputs, look at the gradients that all of them have received. The scale changes after
// each step of an optimizer, as in Accelerate. Gradients that other optimizers hold at that moment
// are converted to the new scale. Thread rule: that of the Accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/process/group.h"
#include "optim/loss_scale.h"
#include "prepare/synced_state.h"

namespace hasten {

class LossScaling : public SyncedState {
 public:
  using Optimizers = std::vector<std::shared_ptr<SyncedOptimizer>>;

  LossScaling(const GradScalerKwargs& options, Group group)
      : scale_(options), group_(std::move(group)) {}

  double value() const { return scale_.value(); }
  // Divides the gradients of the optimizer's parameters, and of its unstepped ones, by the scale
  // unless that was done since its last step.
  void unscale(SyncedOptimizer& optimizer) const;
  // Ends the scaling of a step: divides the gradients, changes the scale, and returns whether the
  // optimizer may step. If `exchanges` is true, the ranks agree by a collective. Throws
  // DivergedError "optim.loss-scale".
  bool finish(SyncedOptimizer& optimizer, const Optimizers& all, bool exchanges);

  // Returns the scale and the number of skipped steps of the run, for a checkpoint.
  LossScalePosition position() const;
  void restore(const LossScalePosition& position);
  // Begins a run that is not resumed.
  void reset();

  std::string state() const override;
  void restore(const std::string& state) override;

 private:
  // Returns whether the gradients of all ranks are finite.
  bool are_finite_on_all_ranks(const SyncedOptimizer& optimizer, bool exchanges) const;

  LossScale scale_;
  Group group_;
  std::int64_t skipped_steps_ = 0;
};

}  // namespace hasten
