// File: prepare/synced_state.h (internal)
// Training state other than the models. A process that ran out of data copies it from a process
// that continued (hasten/prepare/detail/join.h).
//
//   SyncedStates states;
//   states.add(std::make_shared<SyncedOptimizer>(optimizer));
//   for (const auto& each : states.all()) each->restore(bytes);
//
// Thread rule: one thread at a time.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hasten {

class OptimizerStep;

class SyncedState {
 public:
  virtual ~SyncedState() = default;
  // The state as bytes.
  virtual std::string state() const = 0;
  // Adopts the state of another process.
  virtual void restore(const std::string& state) = 0;
};

class SyncedOptimizer : public SyncedState {
 public:
  explicit SyncedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {}
  std::string state() const override;
  void restore(const std::string& state) override;
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  const std::shared_ptr<torch::optim::Optimizer>& shared() const { return optimizer_; }
  std::vector<at::Tensor> parameters() const;
  // Returns its parameters and, after them, `unstepped`.
  std::vector<at::Tensor> parameters_with_unstepped() const;
  // See PreparedOptimizer::set_unstepped_parameters.
  std::vector<at::Tensor> unstepped;
  std::int64_t steps = 0;
  // The part that all handles of the optimizer share. Null if only schedulers remain.
  std::weak_ptr<OptimizerStep> step;

  // With Precision::fp16: whether its gradients and those of `unstepped` have been divided by the
  // scale of the loss since its last step, whether all of them were finite then, and whether its
  // latest step was skipped.
  bool is_unscaled = false, step_was_skipped = false;
  at::Tensor finite;
  // Call it when these gradients have been cleared.
  void reset_unscaling() {
    is_unscaled = false;
    finite.reset();
  }

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

class SyncedScheduler : public SyncedState {
 public:
  explicit SyncedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  const std::shared_ptr<torch::optim::LRScheduler>& shared() const { return scheduler_; }
  void step();
  std::string state() const override;
  void restore(const std::string& state) override;
  // The numbers that a checkpoint keeps. Setting them does not change the learning rates, which
  // belong to the optimizer's state.
  struct Counts {
    std::int64_t steps = 0;            // the steps made through the handle
    std::int64_t step_count = 0;       // the count of the scheduler itself
    std::int64_t optimizer_steps = 0;  // see below
  };
  Counts counts() const;
  void set_counts(const Counts& counts);
  // The optimizer whose steps it follows. Null if it follows the accumulation windows.
  std::shared_ptr<SyncedOptimizer> optimizer;
  // The number of the optimizer's steps at the scheduler's last step.
  std::int64_t optimizer_steps = 0;

 private:
  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::int64_t steps_ = 0;
};

// The states of the prepared objects that still exist.
class SyncedStates {
 public:
  void add(const std::shared_ptr<SyncedOptimizer>& optimizer);
  // Adds a scheduler before every optimizer. It sets learning rates while it catches up, and the
  // optimizer's state then replaces them with the right ones.
  void add(const std::shared_ptr<SyncedScheduler>& scheduler);
  // Adds any other state.
  void add(const std::shared_ptr<SyncedState>& state);
  // Returns the states in the order in which they are copied.
  std::vector<std::shared_ptr<SyncedState>> all() const;

 private:
  std::vector<std::weak_ptr<SyncedState>> states_;
};

}  // namespace hasten
