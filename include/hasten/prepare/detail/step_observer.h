// File: hasten/prepare/detail/step_observer.h
// Reports the events of a training step to observers, such as the anatomy.
//
//   struct Clock : StepObserver {
//     void enter(StepPhase) override { entered = std::chrono::steady_clock::now(); }
//     std::chrono::steady_clock::time_point entered;
//   };
//   StepObservers observers;
//   observers.add(std::make_shared<Clock>());
//
// The prepared objects of an Accelerator make the calls, in the order of the loop, on the training
// thread. An observer is kept alive until it is removed; it also learns of models and optimizers
// that were prepared before it was added. Without observers an event costs one comparison. Thread
// rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

enum class StepPhase { forward, backward, optimizer };

class HASTEN_API StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called once for each prepared model.
  virtual void on_model(torch::nn::Module&) {}
  // Called once for each prepared optimizer.
  virtual void on_optimizer(const std::shared_ptr<torch::optim::Optimizer>&) {}
  // Called with the tensors of a batch that has been moved to the device.
  virtual void on_batch(const std::vector<at::Tensor>&) {}
  virtual void enter(StepPhase) {}
  virtual void leave(StepPhase) {}
  // Called after a step of an optimizer.
  virtual void on_step() {}
};

class HASTEN_API StepObservers {
 public:
  void add(const std::shared_ptr<StepObserver>& observer);
  void remove(const StepObserver& observer);
  bool empty() const { return observers_.empty(); }

  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  void add_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer);

  // Calls a function of every observer, such as &StepObserver::on_step.
  template <class... Parameters, class... Arguments>
  void notify(void (StepObserver::*event)(Parameters...), Arguments&&... arguments) const {
    for (const auto& observer : observers_) ((*observer).*event)(arguments...);
  }

 private:
  std::vector<std::shared_ptr<StepObserver>> observers_;
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  std::vector<std::weak_ptr<torch::optim::Optimizer>> optimizers_;
};

// Reports the beginning of a phase, and its end when it is destroyed.
class [[nodiscard]] PhaseScope {
 public:
  PhaseScope(const StepObservers& observers, StepPhase phase)
      : observers_(observers), phase_(phase) {
    observers_.notify(&StepObserver::enter, phase_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() { observers_.notify(&StepObserver::leave, phase_); }

 private:
  const StepObservers& observers_;
  StepPhase phase_;
};

}  // namespace hasten
