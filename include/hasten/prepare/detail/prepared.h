// File: hasten/prepare/detail/prepared.h
// The handles that Accelerator::prepare returns. They behave like the objects that they wrap and
// take part in gradient accumulation.
//
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   auto y = model(x);  // in the Accelerator's precision; model-> accesses the module itself
//   optimizer.step();   // does nothing inside an accumulation window
//
// A handle shares its object: an lvalue given to prepare must outlive the handle, and an rvalue is
// moved into it. A copy of a handle refers to the same object. The types can be named:
// PreparedModel<Net>, PreparedLoader<Loader>, PreparedOptimizer, PreparedScheduler.
//
// Accelerator::free_memory(handle), reset() and a move leave a handle empty. Calls of an empty
// handle, except reset() and operator bool, throw UsageError "prepare.empty-handle"; so do the
// Accelerator's calls that take it, except free_memory(). Copies of the handle still refer to the
// object, but a model that was given to free_memory() is no longer prepared: its gradients are not
// exchanged, and checkpoints do not contain it. Thread rule: the same as for the objects; one
// thread at a time.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/device/detail/deferred_scalar.h"
#include "hasten/models/hooks.h"
#include "hasten/optim/scheduler.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/prepare/detail/prepared_loader.h"

namespace hasten {

class AcceleratorState;
class OptimizerStep;
class SyncedOptimizer;
class SyncedScheduler;

namespace detail {

// The scope of a call of a prepared model, in the Accelerator's precision.
class [[nodiscard]] HASTEN_API ForwardScope {
 public:
  ForwardScope(AcceleratorState& state, const torch::nn::Module& module);
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope();

 private:
  AcceleratorState& state_;
  std::optional<AutocastGuard> guard_;
};

}  // namespace detail

template <class Impl>
class PreparedModel {
 public:
  using IsPrepared = void;

  // Accelerator::prepare calls it.
  PreparedModel(std::shared_ptr<Impl> module, std::shared_ptr<AcceleratorState> state)
      : module_(std::move(module)), state_(std::move(state)) {}

  // Calls the module's forward() in the Accelerator's precision, with the module's hooks
  // (hasten/models/hooks.h).
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    Impl& module = **this;
    const detail::ForwardScope scope(*state_, module);
    return call_module(module, std::forward<Arguments>(arguments)...);
  }
  // Calls f with the module, as one forward pass in the Accelerator's precision. It is for
  // functions that call the module themselves: `model.call([&](Net& net) { return loss_of(net,
  // batch); })`.
  template <class F>
  auto call(F&& f) {
    Impl& module = **this;
    const detail::ForwardScope scope(*state_, module);
    return std::forward<F>(f)(module);
  }
  Impl* operator->() const { return unwrap().get(); }
  Impl& operator*() const { return *unwrap(); }
  // The module without its handle, like Accelerate's unwrap_model.
  const std::shared_ptr<Impl>& unwrap() const {
    return detail::object_of(module_, "a prepared model");
  }
  // False if the handle is empty.
  explicit operator bool() const noexcept { return module_ != nullptr; }
  // Releases the module. The handle is empty afterwards.
  void reset() { module_.reset(); }

 private:
  std::shared_ptr<Impl> module_;
  std::shared_ptr<AcceleratorState> state_;
};

class HASTEN_API PreparedOptimizer {
 public:
  using IsPrepared = void;

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                    std::shared_ptr<AcceleratorState> state);

  // Makes a step, unless an accumulation window of its parameters waits for more micro-batches.
  // Closes a window whose last micro-batch had no backward pass. With several processes it throws
  // UsageError "prepare.raw-backward" if gradients come from loss.backward(), which exchanges
  // nothing. With Precision::fp16 the step is skipped if a gradient is infinite or NaN in any
  // process, and the scale of the loss changes; with several processes, step() is then a
  // collective. Throws DivergedError "optim.loss-scale" if gradients overflow at every scale.
  void step();
  // True if the latest call of step() that had the gradients of a whole window skipped its step.
  bool step_was_skipped() const;
  // For optimizers that evaluate the loss several times in a step (LBFGS). The closure clears the
  // gradients, computes the loss, calls accelerator.backward(loss) and returns the loss; with
  // gradient accumulation it does so for each micro-batch of the window, inside accumulate(). With
  // several processes the optimizer receives the mean of their losses, so that all make the same
  // decisions. Returns what the optimizer returns, usually the loss of the first evaluation. Throws
  // UsageError "prepare.closure-in-window", "prepare.open-window", and "prepare.scaled-losses".
  at::Tensor step(const std::function<at::Tensor()>& closure);
  // Clears the gradients, unless that would lose gradients of an open window, so it may be called
  // anywhere in the loop.
  void zero_grad(bool set_to_none = true);
  // Sets parameters that get gradients although no optimizer steps them, such as the rest of a
  // module that is trained in part. zero_grad() then clears their gradients too. With
  // Precision::fp16 they are divided by the scale of the loss together with the optimizer's, so
  // that a norm over all of them is the same in each precision, and step() is also skipped if one
  // of them is infinite or NaN. Parameters of the optimizer are ignored, so all parameters of a
  // module may be passed.
  void set_unstepped_parameters(const std::vector<at::Tensor>& all);

  // The number of steps made so far, without skipped steps.
  std::int64_t steps() const;
  // The norm of the gradients of the latest step if they were used and freed in the backward pass
  // (AcceleratorOptions::step_in_backward). 0 without that option.
  DeferredScalar norm_in_backward() const;
  torch::optim::Optimizer& unwrap() const {
    return *detail::object_of(optimizer_, "a prepared optimizer");
  }
  torch::optim::Optimizer* operator->() const { return &unwrap(); }
  // False if the handle is empty.
  explicit operator bool() const noexcept { return optimizer_ != nullptr; }
  void reset() {
    optimizer_.reset();
    step_.reset();
    synced_optimizer_.reset();
  }

 private:
  friend class PreparedScheduler;
  // Throws if the handle is empty.
  void check_not_empty() const;
  std::vector<at::Tensor> parameters() const;
  at::Tensor evaluate(const std::function<at::Tensor()>& closure);
  void count_step();

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<SyncedOptimizer> synced_optimizer_;
  std::shared_ptr<OptimizerStep> step_;
};

class HASTEN_API PreparedScheduler {
 public:
  using IsPrepared = void;

  // A scheduler whose step() does nothing while the latest micro-batch does not close its window,
  // or if the latest step of a prepared optimizer was skipped.
  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    std::shared_ptr<AcceleratorState> state);
  // A scheduler of a prepared optimizer: its step() does nothing if that optimizer has made no step
  // since the last call.
  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    const PreparedOptimizer& optimizer);

  // Advances the schedule by one optimizer step.
  void step();
  torch::optim::LRScheduler& unwrap() const {
    return *detail::object_of(scheduler_, "a prepared scheduler");
  }
  torch::optim::LRScheduler* operator->() const { return &unwrap(); }
  // False if the handle is empty.
  explicit operator bool() const noexcept { return scheduler_ != nullptr; }
  void reset() {
    scheduler_.reset();
    synced_scheduler_.reset();
  }

 private:
  // Returns the handle. Throws if it is empty.
  static const PreparedOptimizer& checked(const PreparedOptimizer& optimizer);

  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<SyncedScheduler> synced_scheduler_;
};

// Makes a scheduler by its name for a prepared optimizer; see hasten/optim/scheduler.h.
HASTEN_API PreparedScheduler get_scheduler(const std::string& name,
                                           const PreparedOptimizer& optimizer,
                                           const SchedulerOptions& options);
// The same in the argument order of transformers:
// get_scheduler("linear", optimizer, num_warmup_steps, num_training_steps).
HASTEN_API PreparedScheduler get_scheduler(const std::string& name,
                                           const PreparedOptimizer& optimizer,
                                           std::int64_t num_warmup_steps,
                                           std::int64_t num_training_steps);

}  // namespace hasten
