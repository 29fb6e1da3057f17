// File: hasten/prepare/detail/join.h
// Training on inputs of unequal length: the scope of Accelerator::join_uneven_inputs.
//
//   {
//     auto guard = accelerator.join_uneven_inputs(model);
//     for (const auto& batch : own_batches) {  // their number may differ between processes
//       optimizer.zero_grad();
//       accelerator.backward(loss_of(model(batch)), batch.size(0));
//       optimizer.step();
//     }
//   }  // blocks until all processes have finished
//
// A process that has finished its loop takes part in the collectives of the others at the end of
// the scope. It adds zeros to their gradients (or the gradients of its open accumulation window),
// and no rows to their gather_for_metrics. So no process hangs. A gradient is the mean over the
// processes that had data: it is divided by their weight, not by the number of processes. When all
// processes have finished, the ones that stopped earlier copy weights, buffers, optimizers and
// schedulers from one that continued to the end, so that all continue with the same bits. PyTorch's
// Join copies the model only, so that moments and learning rates differ from then on, and it
// divides by the number of processes.
//
// The k-th exchange of each process is the same exchange; accumulation windows that close after
// different numbers of micro-batches are weighted by the micro-batches in them. Other collectives
// in the scope (gather, reduce, check_trigger and others) throw UsageError "prepare.join-call" in
// every process once one process has finished; call them after the scope. Each backward pass that
// exchanges gradients needs two more small collectives.
//
// The end of the scope is a collective and may throw what a collective throws. If the scope is left
// by an exception, its end does not wait for other processes. Throws UsageError
// "prepare.nested-join", "prepare.join-model" (a backward pass exchanges gradients of a model that
// the scope was not given), "prepare.join-order" (processes with data do different things),
// "prepare.join-state" (an optimizer cannot be copied). Thread rule: the same as for the
// Accelerator. Source: the behaviour of Accelerate's join_uneven_inputs and PyTorch's Join.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

class AcceleratorState;

struct JoinOptions {
  // Replaces DataLoaderConfiguration::even_batches for loaders whose pass begins in the scope.
  std::optional<bool> even_batches = {};
};

// The scope: Accelerator::join_uneven_inputs returns it.
class [[nodiscard]] HASTEN_API JoinScope {
 public:
  JoinScope(std::shared_ptr<AcceleratorState> state, const std::vector<torch::nn::Module*>& models,
            JoinOptions options);
  JoinScope(const JoinScope&) = delete;
  JoinScope& operator=(const JoinScope&) = delete;
  ~JoinScope() noexcept(false);

 private:
  std::shared_ptr<AcceleratorState> state_;
  int uncaught_exceptions_;
};

}  // namespace hasten
