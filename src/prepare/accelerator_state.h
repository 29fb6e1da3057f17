// File: prepare/accelerator_state.h (internal)
// The state that the Accelerator shares with the objects that it has prepared: the windows of
// gradient accumulation, the exchange of gradients, the loaders in use, and the device and process.
// Public headers only declare the class.
//
//   auto state = std::make_shared<AcceleratorState>(Precision::no, ProcessState{});
//   state->add_model(module);
//   state->backward({.loss = loss});
//   if (state->close_due_windows(parameters)) optimizer.step();
//
// The parts do not refer to each other. The functions here need several of them. Throws UsageError
// "prepare.*" (docs/errors.md). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/group_save.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/prepare/detail/step_observer.h"
#include "hasten/process/detail/logger.h"
#include "hasten/process/group.h"
#include "prepare/accumulation.h"
#include "prepare/batch_placement.h"
#include "prepare/elastic_ranks.h"
#include "prepare/gradient_sync.h"
#include "prepare/loader_registry.h"
#include "prepare/loss_scaling.h"
#include "prepare/optimizer_step.h"
#include "prepare/saved_objects.h"
#include "prepare/synced_state.h"

namespace hasten {

class AcceleratorState {
 public:
  AcceleratorState(Precision precision, ProcessState process, Group group = Group::single(),
                   std::int64_t accumulation_steps = 1, DistributedDataParallelKwargs ddp = {},
                   DataLoaderConfiguration loader_configuration = {}, ElasticOptions elastic = {},
                   const GradScalerKwargs& grad_scaler = {});

  // Adds a prepared model. With several processes the call is a collective: the weights become
  // equal to rank 0's, and from then on gradients are summed over the processes.
  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  void remove_model(const torch::nn::Module* module);
  // Drops all windows and their contents. The models stay prepared.
  void drop_windows();

  // Counts a scope in the Accelerator's precision. With mixed precision, a backward pass before the
  // first scope belongs to a forward pass without autocast.
  void count_forward_pass() { ++forward_passes_; }
  // AccumulateScope calls these two (hasten/prepare/detail/scopes.h).
  void begin_micro_batch(const Models& models, std::optional<bool> ends_window);
  void end_micro_batch();
  // Runs the backward pass, and closes the window if it is due. The inputs of the pass are the
  // user's. Inside accumulate() it does not change the gradients of prepared models that were not
  // passed to accumulate(). Outside of accumulate() it does not change the gradients of models with
  // an open window.
  void backward(BackwardPass pass);

  // Call it before the gradients of these parameters are used for a step. Returns false if a window
  // of these parameters waits for more micro-batches. Closes a due window if its last micro-batch
  // had no backward pass. Throws "prepare.open-window", "prepare.raw-backward".
  bool close_due_windows(const std::vector<at::Tensor>& parameters);
  // Warns once if losses inside accumulate() reach some of these parameters but do not train them,
  // because their model was not passed to accumulate().
  void warn_about_untrained(const std::vector<at::Tensor>& parameters);
  // Divides the gradients of each prepared optimizer that has one of these parameters by the scale
  // of the loss, unless that was done since its last step. Call it after close_due_windows().
  void unscale(const std::vector<at::Tensor>& parameters);
  // Returns whether the optimizer may step. With scaled losses it may not if a gradient is infinite
  // or NaN.
  bool may_step(SyncedOptimizer& optimizer);
  // True if the latest step of a prepared optimizer was skipped.
  bool step_was_skipped();
  // The largest number of micro-batches of a window in one rank.
  std::int64_t accumulation_steps() const;
  // Throws UsageError "prepare.elastic-loop" if there are elastic ranks, because `call` has no
  // meaning with them.
  void check_without_elastic_ranks(const char* call) const;
  // Throws UsageError "prepare.scaled-losses" if losses are scaled, because `call` cannot work with
  // them.
  void check_without_scaled_losses(const char* call) const;
  // Throws if a forward pass of this module would now draw random numbers that belong to no virtual
  // rank.
  void check_forward(const torch::nn::Module& module) const;

  const Precision precision;
  const ProcessState process;
  const Group group;
  BatchPlacement placement;
  LoaderRegistry loaders;
  StepObservers observers;
  SyncedStates synced_states;
  SavedObjects saved;
  Accumulation accumulation;
  // Has no models if there are elastic ranks, which exchange gradients themselves.
  GradientSync gradients;
  std::unique_ptr<ElasticRanks> elastic;  // null if there are none
  std::shared_ptr<LossScaling> scaling;   // null if losses are not scaled
  // How the prepared optimizers step.
  SteppingOptions stepping;
  // Whether graphs may repeat the steps of a TrainingStep.
  bool cuda_graph = false;
  // Set by Accelerator::set_trigger.
  bool trigger = false;

 private:
  void check(const BackwardPass& pass) const;
  void check_create_graph(const BackwardPass& pass) const;
  void check_step_in_backward(const BackwardPass& pass) const;
  void check_not_unscaled(const BackwardPass& pass);
  void run_backward(const BackwardPass& pass, AccumulationWindow* window);
  void backward_local(const BackwardPass& pass, AccumulationWindow* window);
  void backward_elastic(const BackwardPass& pass, AccumulationWindow* window);
  void close_elastic(AccumulationWindow& window);
  void drop_destroyed_models();

  std::int64_t forward_passes_ = 0;
  // Marks a living Accelerator, so that notebook_launcher refuses to fork.
  std::shared_ptr<void> fork_hazard_;
  Logger logger_;

 public:
  // The checkpoint that is being written. It is the last member, because its destructor waits until
  // it is written.
  GroupSave background_save;
};

}  // namespace hasten
