// File: hasten/prepare/step_observer.h
// What the prepared objects of one Accelerator tell whoever listens to a training step: the anatomy
// does.
//
//   struct Clock : StepObserver { void enter(StepPhase phase) override { ... } };
//   observers.add(clock);                        // until the observer is destroyed or removed
//
// Calls come in the order of the loop, on the thread that trains. Without observers they cost a
// comparison. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

namespace hasten {

enum class StepPhase { forward, backward, optimizer };

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Once each, also for what was prepared before the observer came.
  virtual void on_model(torch::nn::Module&) {}
  virtual void on_optimizer(const std::shared_ptr<torch::optim::Optimizer>&) {}
  // A batch arrives on the device: its tensors.
  virtual void on_batch(const std::vector<at::Tensor>&) {}
  virtual void enter(StepPhase) {}
  virtual void leave(StepPhase) {}
  // An optimizer has stepped.
  virtual void on_step() {}
};

class StepObservers {
 public:
  void add(const std::shared_ptr<StepObserver>& observer);
  void remove(const StepObserver& observer);
  bool empty() const { return observers_.empty(); }

  void model(const std::shared_ptr<torch::nn::Module>& module);
  void optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer);

  template <class... Parameters, class... Arguments>
  void tell(void (StepObserver::*event)(Parameters...), Arguments&&... arguments) const {
    for (const auto& observer : observers_) ((*observer).*event)(arguments...);
  }

 private:
  std::vector<std::shared_ptr<StepObserver>> observers_;
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  std::vector<std::weak_ptr<torch::optim::Optimizer>> optimizers_;
};

// enter and leave.
class [[nodiscard]] PhaseScope {
 public:
  PhaseScope(const StepObservers& observers, StepPhase phase)
      : observers_(observers), phase_(phase) {
    observers_.tell(&StepObserver::enter, phase_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() { observers_.tell(&StepObserver::leave, phase_); }

 private:
  const StepObservers& observers_;
  StepPhase phase_;
};

}  // namespace hasten
