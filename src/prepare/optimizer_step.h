// File: prepare/optimizer_step.h (internal)
// The step of a prepared optimizer. It steps all parameters at once, or one at a time in the
// backward pass; on the device or in host memory (AcceleratorOptions::step_in_backward and
// offload_optimizer_states).
//
//   OptimizerStep step(optimizer, {.in_backward = true}, state);
//   loss.backward();  // steps and frees each gradient
//   step.run();       // steps what still has a gradient: nothing
//
// If the parameters of an optimizer do not depend on each other, they are stepped one at a time
// (prepare/partial_step.h). In the backward pass a hook of LibTorch's gradient accumulator starts
// the step. LibTorch adds up all contributions of a pass before the hook, so a parameter that is
// used twice is stepped once.
//
// Throws UsageError "prepare.step-in-backward", "prepare.offload". Thread rule: the training
// thread, and the autograd engine's thread of the device during a backward pass.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hasten/device/detail/deferred_scalar.h"
#include "hasten/process/group.h"
#include "optim/distinct.h"
#include "prepare/host_states.h"

namespace hasten {

class AcceleratorState;

struct SteppingOptions {
  bool in_backward = false;
  bool offloads_states = false;
};

// Throws if a run cannot step with these options.
void check_stepping(const SteppingOptions& options, const ProcessState& process,
                    std::int64_t accumulation_steps, std::int64_t elastic_ranks);
// Throws "prepare.step-in-backward" for an operation that needs all gradients at once.
[[noreturn]] void throw_needs_gradients(const char* what);

class OptimizerStep {
 public:
  // Keeps a weak reference to the state.
  OptimizerStep(std::shared_ptr<torch::optim::Optimizer> optimizer, const SteppingOptions& options,
                const std::shared_ptr<AcceleratorState>& state);
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;
  ~OptimizerStep();

  // Steps all parameters that have gradients, and ends the step.
  void run();
  // Throws if the optimizer cannot evaluate a closure.
  void check_closure() const;
  DeferredScalar norm_in_backward() const;

 private:
  class Hook;
  void check_optimizer() const;
  void add_hooks();
  void step_in_backward(const at::Tensor& parameter);
  void add_to_norm(const at::Tensor& parameter);

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  const SteppingOptions options_;
  std::weak_ptr<AcceleratorState> state_;
  HostStates host_;
  PartialStep partial_;
  std::vector<at::Tensor> hooked_parameters_;
  TensorSet hooked_parameter_set_;  // the parameters with a hook
  TensorSet stepped_parameters_;    // since the latest run()
  double squares_ = 0;              // the sum of squares of the gradients since the latest run()
  at::Tensor squares_on_device_;
  DeferredScalar norm_;  // of the latest step
};

}  // namespace hasten
