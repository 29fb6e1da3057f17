// File: hasten/prepare/join.h
// Training on inputs of unequal length: Accelerator::join_uneven_inputs.
//
//   {
//     auto guard = accelerator.join_uneven_inputs(model);
//     for (const auto& batch : own_batches) {           // three here, five there
//       optimizer.zero_grad();
//       accelerator.backward(loss_of(model(batch)), batch.size(0));
//       optimizer.step();
//     }
//   }                                                   // waits here until all have finished
//
// A process that is through with its loop takes part in what the others do, at the end of the
// scope: it adds zeros to their gradients (or what its open accumulation window holds), and no row
// to their gather_for_metrics. So nobody hangs, and a gradient is that of the mean over those that
// had data: divided by their weight, not by the number of processes. When all are through, those
// that stopped earlier take weights, buffers, optimizers and schedulers over from one that went on
// to the end: all go on equal, to the bit. torch's Join hands over the model alone, so that moments
// and learning rates differ from there on, and divides by the number of processes.
//
// The k-th exchange of every process is one exchange; accumulation windows that close after
// another number of micro-batches are weighed by what they hold. Other collectives in the scope
// (gather, reduce, check_trigger, ...) throw UsageError "prepare.join-call" in every process once
// one is through; do them after the scope. Each backward pass that exchanges costs two small
// collectives more.
//
// The end of the scope is a collective and may throw what a collective throws; where the scope is
// left by an exception, nothing is waited for. Throws UsageError "prepare.nested-join",
// "prepare.join-model" (a backward pass that exchanges gradients of a model that was not named),
// "prepare.join-order" (processes with data do different things). Thread rule: the Accelerator's.
// Source: the behaviour of accelerate's join_uneven_inputs and torch's Join.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

#include "hasten/prepare/step.h"

namespace hasten {

struct JoinOptions {
  // For loaders whose pass begins in the scope, instead of DataLoaderConfiguration's.
  std::optional<bool> even_batches;
};

class [[nodiscard]] JoinUnevenInputs {
 public:
  JoinUnevenInputs(std::shared_ptr<Step> step, const std::vector<torch::nn::Module*>& models,
                   JoinOptions options);
  JoinUnevenInputs(const JoinUnevenInputs&) = delete;
  JoinUnevenInputs& operator=(const JoinUnevenInputs&) = delete;
  ~JoinUnevenInputs() noexcept(false);

 private:
  std::shared_ptr<Step> step_;
  int thrown_before_;
};

}  // namespace hasten
