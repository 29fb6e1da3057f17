// File: hasten/optim/repeated_step.h
// A step of an optimizer that a graph of a device repeats (docs/design/024). A replay runs the kernels of
// the step with the numbers that they were given when they were recorded, so everything that changes from
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
// Throws UsageError "optim.repeated-step" for what a graph cannot repeat. Thread rule: that of the
// optimizer, which must outlive the step.
#pragma once

#include <memory>

#include "hasten/base/export.h"

namespace hasten {

class HASTEN_API RepeatedStep {
 public:
  virtual ~RepeatedStep() = default;
  // Returns whether a replay would still be the next step: the optimizer and its parameters have the
  // tensors and the other options that they had.
  virtual bool can_repeat() const = 0;
  // Writes the learning rates and the counts of the next step.
  virtual void write_numbers() = 0;
  // Runs the operations of a step with the gradients that are there and the numbers that were written.
  virtual void run() = 0;
  // Makes the next step() of the optimizer count this step, without running any operation.
  virtual void mark_replayed() = 0;
};

// An optimizer whose steps can be repeated.
class HASTEN_API RepeatsSteps {
 public:
  virtual ~RepeatsSteps() = default;
  virtual std::unique_ptr<RepeatedStep> repeated_step() = 0;
};

}  // namespace hasten
