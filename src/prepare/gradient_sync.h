// File: prepare/gradient_sync.h (internal)
// Exchanges the gradients of the models of one Accelerator between its processes, for backward
// passes and for windows that close without a backward pass.
//
//   GradientSync gradients(group, options);
//   gradients.add_model(module);           // a collective
//   if (!gradients.is_local(pass, window)) gradients.exchange(pass, window);
//
// Gradients are sums of loss gradients times their weights. The exchange of the buckets divides
// them once, by the sum of all weights. Inside join_uneven_inputs a process announces each
// exchange, so that processes without data take part (prepare/join_participant.h). In a group with
// one process this object has no models, and nothing is exchanged. Throws UsageError "prepare.*"
// (docs/errors.md). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hasten/prepare/detail/data_parallel.h"
#include "hasten/prepare/detail/exchange_hook.h"
#include "hasten/process/group.h"
#include "prepare/accumulation_window.h"
#include "prepare/backward_pass.h"
#include "prepare/backward_runner.h"
#include "prepare/data_parallel_model.h"
#include "prepare/exchange_announcer.h"
#include "prepare/gradient_exchange.h"

namespace hasten {

class GradientSync {
 public:
  GradientSync(Group group, DistributedDataParallelKwargs options);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Adds a model, unless it was added before. Its weights become equal to rank 0's. A collective.
  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  void remove_model(const torch::nn::Module* module);
  void drop_destroyed_models();

  // Copies the buffers of one rank to all processes if the options of the model require it. It is a
  // collective only in that case.
  void sync_buffers(const torch::nn::Module* module);
  // Sets when the gradients of the model are exchanged. Returns the previous value.
  Synchronization set_synchronization(const torch::nn::Module* module,
                                      Synchronization synchronization);
  // Replaces the weights of the model by their mean over the processes. A collective.
  void average(const torch::nn::Module* module);

  // True if this pass exchanges nothing with other processes. Throws "prepare.local-sgd-mixed".
  bool is_local(const BackwardPass& pass, const AccumulationWindow* window) const;
  // Runs the pass and exchanges the gradients that are due. `window` is null for a pass that
  // belongs to no window.
  void exchange(const BackwardPass& pass, AccumulationWindow* window);
  // Adds a function that is called before the exchange of a window
  // (hasten/prepare/detail/exchange_hook.h). Throws "prepare.join-call" inside join_uneven_inputs.
  ExchangeHook add_pre_exchange_function(std::function<void()> function);
  // Called before a step if the window's last micro-batch had no backward pass, or none that
  // reached all of these parameters. Throws "prepare.open-window".
  void close(AccumulationWindow& window, const std::vector<at::Tensor>& parameters);
  // Throws "prepare.open-window" if the window's last micro-batch ended with neither backward() nor
  // step(), because other processes may have closed the window in it.
  void check_not_abandoned(const AccumulationWindow& window) const;

  // Throws "prepare.raw-backward" if gradients of these parameters have not been exchanged.
  void throw_if_unexchanged(const std::vector<at::Tensor>& parameters) const;
  // Call it after these gradients have been cleared.
  void mark_cleared(const std::vector<at::Tensor>& parameters);
  // Call it before a backward pass.
  void reset_weight_share() { weight_share_.reset(); }
  // Returns the loss of the latest backward pass. If the pass exchanged gradients, this is the
  // weighted mean over the processes, and the call is a collective.
  at::Tensor mean_loss(const at::Tensor& loss);

  // Runs passes that exchange nothing.
  const BackwardRunner& runner() const { return runner_; }
  // Announces collectives inside join_uneven_inputs.
  ExchangeAnnouncer& announcer() { return announcer_; }
  // Begins a scope in which processes may run out of data; announcer().end_join() ends it. Throws
  // "prepare.nested-join", "prepare.join-call".
  void begin_join(const std::vector<torch::nn::Module*>& models);
  // True if models send their gradients with PowerSGD, which has a state of its own.
  bool uses_power_sgd() const { return !models_.empty() && is_power_sgd(options_.comm_hook); }
  // True inside join_uneven_inputs.
  bool is_in_join() const { return announcer_.join() != nullptr; }

  // A process without data makes the following calls instead of those above
  // (prepare/join_participant.h).
  // Closes the window with the weights of all processes. A collective.
  void close_with_weights(AccumulationWindow& window);
  // Exchanges models of a closed window. Their gradients are sums over this process's micro-batches
  // or, after an exchange, the result that all processes share. Without a pass this process adds
  // zeros to them.
  void exchange_window(AccumulationWindow& window, const std::vector<DataParallelModel*>& models,
                       const BackwardPass* pass);
  // Adds zeros to an exchange before the end of a window.
  void exchange_zeros(const std::vector<DataParallelModel*>& models);

 private:
  void exchange_pass(const BackwardPass& pass);
  void exchange_at_end(const BackwardPass& pass, AccumulationWindow& window);
  void add_local(const BackwardPass& pass, double share) const;
  void exchange_after_pass(const BackwardPass& pass, AccumulationWindow& window,
                           const std::vector<DataParallelModel*>& models);
  bool has_pre_exchange_function() const;
  void throw_join_with_hook() const;
  void exchange_remaining(AccumulationWindow& window, std::vector<DataParallelModel*> missing);
  void divide_local(AccumulationWindow& window, const std::vector<at::Tensor>& parameters) const;
  double total_weight(double own, bool differs);
  bool announces_models(const AccumulationWindow& window) const;

  // Returns the models of the window, or all models if there is no window. If there are several
  // prepared models, returns only those that the loss reaches.
  std::vector<DataParallelModel*> models_of(const BackwardPass& pass,
                                            const AccumulationWindow* window) const;
  // Returns the models of the pass that exchange gradients in this pass.
  std::vector<DataParallelModel*> models_to_exchange(const BackwardPass& pass,
                                                     const AccumulationWindow* window) const;
  // Returns the models of a window that exchange gradients at its end.
  std::vector<DataParallelModel*> models_at_end(const AccumulationWindow& window) const;

  const Group group_;
  const DistributedDataParallelKwargs options_;
  std::vector<std::unique_ptr<DataParallelModel>> models_;  // in the order of their preparation
  const BackwardRunner runner_;
  ExchangeAnnouncer announcer_;
  // The weight of this process's latest loss divided by the sum of the weights of all processes. It
  // is unset if the processes exchanged nothing.
  std::optional<double> weight_share_;
  std::vector<std::shared_ptr<std::function<void()>>> pre_exchange_functions_;
};

}  // namespace hasten
