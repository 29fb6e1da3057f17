#include "prepare/optimizer_step.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "checkpoint/optimizer_state.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"
#include "prepare/accelerator_state.h"

namespace hasten {
namespace {

[[noreturn]] void throw_stepping_error(const char* code, const std::string& what,
                                       const std::string& expected, const std::string& hint) {
  throw UsageError(code, {.what = what, .got = "", .expected = expected, .hint = hint});
}

[[noreturn]] void throw_step_in_backward_error(const std::string& what,
                                               const std::string& expected) {
  throw_stepping_error("prepare.step-in-backward", "step_in_backward with " + what, expected,
                       "leave out AcceleratorOptions::step_in_backward (--step_in_backward)");
}

std::string description_of(const torch::optim::Optimizer& optimizer) {
  try {
    return "the optimizer " + name_of_optimizer(optimizer);
  } catch (const UsageError&) {
    return "an optimizer that is neither hasten's nor LibTorch's";
  }
}

// During its lifetime, switches the observers from the backward phase to the optimizer phase,
// because phases do not nest.
class PhaseInterruption {
 public:
  explicit PhaseInterruption(const StepObservers& observers) : observers_(observers) {
    observers_.notify(&StepObserver::leave, StepPhase::backward);
    observers_.notify(&StepObserver::enter, StepPhase::optimizer);
  }
  PhaseInterruption(const PhaseInterruption&) = delete;
  PhaseInterruption& operator=(const PhaseInterruption&) = delete;
  ~PhaseInterruption() {
    observers_.notify(&StepObserver::leave, StepPhase::optimizer);
    observers_.notify(&StepObserver::enter, StepPhase::backward);
  }

 private:
  const StepObservers& observers_;
};

}  // namespace

void throw_needs_gradients(const char* what) {
  throw_step_in_backward_error(
      what,
      "a loop that needs no gradient after the backward pass, which steps and frees "
      "them one by one");
}

void check_stepping(const SteppingOptions& options, const ProcessState& process,
                    std::int64_t accumulation_steps, std::int64_t elastic_ranks) {
  if (options.in_backward) {
    if (process.num_processes > 1) {
      throw_step_in_backward_error(
          str(process.num_processes, " processes"),
          "one process: gradients that are exchanged stay in buckets until the pass "
          "ends, so that stepping earlier would free nothing");
    }
    if (accumulation_steps > 1)
      throw_needs_gradients(str("gradient_accumulation_steps ", accumulation_steps).c_str());
    if (elastic_ranks > 0) throw_needs_gradients("elastic_ranks");
  }
  if (options.offloads_states && !device_of(process.device).traits().is_built_in) {
    throw_stepping_error("prepare.offload",
                         c10::str("offload_optimizer_states on ", process.device),
                         "a GPU or the CPU", "leave out offload_optimizer_states");
  }
}

class OptimizerStep::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(OptimizerStep& step) : step_(step) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    step_.step_in_backward(parameter);
  }

 private:
  OptimizerStep& step_;  // removes the hook when it is destroyed
};

OptimizerStep::OptimizerStep(std::shared_ptr<torch::optim::Optimizer> optimizer,
                             const SteppingOptions& options,
                             const std::shared_ptr<AcceleratorState>& state)
    : optimizer_(std::move(optimizer)), options_(options), state_(state) {
  check_optimizer();
  add_hooks();
}

OptimizerStep::~OptimizerStep() {
  for (const at::Tensor& parameter : hooked_parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void OptimizerStep::check_optimizer() const {
  if (options_.in_backward && !steps_parameters_independently(*optimizer_)) {
    throw_step_in_backward_error(
        description_of(*optimizer_),
        "one that steps each parameter apart: hasten's AdamW, AdamW8bit, Adafactor, "
        "Adamax, AdEMAMix, Lion, Lion8bit, Muon, NAdam and RAdam, or LibTorch's "
        "Adagrad, Adam, AdamW, RMSprop and SGD");
  }
  if (options_.offloads_states && dynamic_cast<torch::optim::LBFGS*>(optimizer_.get()) != nullptr) {
    throw_stepping_error("prepare.offload", "offload_optimizer_states with LBFGS",
                         "an optimizer that keeps a state for each parameter",
                         "leave out offload_optimizer_states");
  }
}

void OptimizerStep::add_hooks() {
  if (!options_.in_backward) return;
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.requires_grad() ||
          !hooked_parameter_set_.insert(parameter.unsafeGetTensorImpl()).second)
        continue;
      if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
        throw_step_in_backward_error(
            "a parameter that has a hook for its complete gradient already",
            "parameters that no other prepared optimizer steps");
      }
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this));
      hooked_parameters_.push_back(parameter);
    }
  }
}

void OptimizerStep::step_in_backward(const at::Tensor& parameter) {
  if (!stepped_parameters_.insert(parameter.unsafeGetTensorImpl()).second) {
    throw_needs_gradients(
        "a second backward pass for a parameter before optimizer.step(), which would step it "
        "again");
  }
  const auto state = state_.lock();
  std::optional<PhaseInterruption> phase;
  if (state) phase.emplace(state->observers);
  const torch::NoGradGuard no_grad;
  add_to_norm(parameter);
  if (options_.offloads_states) {
    host_.step(*optimizer_, {parameter});
  } else {
    partial_.run(*optimizer_, {parameter}, {parameter});
  }
  parameter.mutable_grad().reset();
}

void OptimizerStep::add_to_norm(const at::Tensor& parameter) {
  if (parameter.device().is_cpu()) {
    const double norm = gradient_norm({parameter});
    squares_ += norm * norm;
    return;
  }
  const at::Tensor square = gradient_norm_on_device({parameter}).square();
  squares_on_device_ = squares_on_device_.defined() ? squares_on_device_ + square : square;
}

void OptimizerStep::run() {
  if (options_.offloads_states) {
    std::vector<at::Tensor> all;
    TensorSet seen;
    for (const auto& group : optimizer_->param_groups()) {
      for (const at::Tensor& parameter : distinct(group.params(), seen)) {
        if (parameter.grad().defined()) all.push_back(parameter);
      }
    }
    host_.step(*optimizer_, all);
  } else {
    optimizer_->step();
  }
  if (!options_.in_backward) return;
  stepped_parameters_.clear();
  norm_ = squares_on_device_.defined() ? DeferredScalar((squares_on_device_ + squares_).sqrt())
                                       : DeferredScalar(std::sqrt(squares_));
  squares_ = 0;
  squares_on_device_.reset();
  add_hooks();  // to parameters that have been added
}

void OptimizerStep::check_closure() const {
  if (options_.in_backward) throw_needs_gradients("optimizer.step(closure)");
  if (!options_.offloads_states) return;
  throw_stepping_error("prepare.offload", "offload_optimizer_states with optimizer.step(closure)",
                       "optimizer.step() without a closure", "leave out offload_optimizer_states");
}

DeferredScalar OptimizerStep::norm_in_backward() const { return norm_; }

}  // namespace hasten
