// File: hasten/optim/detail/repeated_step.h
// An optimizer step that a device graph repeats (docs/design/024). A replay runs the recorded
// kernels with the arguments that they had during the recording, so everything that changes from
// step to step, such as the learning rate, is in tensors that are written before each replay.
//
//   AdamW adamw(model->parameters());
//   adamw.step();                                    // an ordinary step makes the moments
//   const std::unique_ptr<RepeatedStep> step = adamw.repeated_step();
//   // After a backward pass, while a graph is recorded:
//   step->run();
//   if (step->can_repeat()) step->write_numbers();   // before each replay
//   step->mark_replayed();                           // after it: the next step() counts the
//   adamw.step();                                    // step and runs nothing
//
// Throws UsageError "optim.repeated-step" for what a graph cannot repeat. Thread rule: the same as
// for the optimizer, which must outlive the step.
#pragma once

#include <memory>

#include "hasten/base/detail/export.h"

namespace hasten {

class HASTEN_API RepeatedStep {
 public:
  virtual ~RepeatedStep() = default;
  // True if a replay would still be the correct next step: the optimizer and its parameters have
  // the same tensors, and no option other than the learning rate has changed.
  virtual bool can_repeat() const = 0;
  // Writes the learning rates and the counts of the next step.
  virtual void write_numbers() = 0;
  // Runs the operations of a step with the current gradients and the numbers that were written.
  virtual void run() = 0;
  // Makes the next step() of the optimizer count this step, without running any operation.
  virtual void mark_replayed() = 0;
};

// An optimizer whose steps can be repeated.
class HASTEN_API CapturableOptimizer {
 public:
  virtual ~CapturableOptimizer() = default;
  virtual std::unique_ptr<RepeatedStep> repeated_step() = 0;
};

}  // namespace hasten
