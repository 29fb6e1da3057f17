// File: hasten/prepare/detail/training_step.h
// A whole training step of a loop of your own: forward and backward passes, clipping, and the step
// of the optimizer. It is the form in which a CUDA graph can repeat a step, so that the host starts
// all of its kernels with one call (AcceleratorOptions::cuda_graph).
//
//   hasten::Accelerator accelerator({.cuda_graph = true});
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   auto step = accelerator.training_step(
//       model, optimizer,
//       [](Net& net, const Batch& batch) {
//         return loss_of(net.forward(batch.data), batch.target);
//       },
//       {.max_grad_norm = 1.0});
//   for (auto& batch : train_loader) {
//     const hasten::StepResult result = step(batch);
//     if (++steps % 100 == 0) std::printf("%f\n", result.loss.value());
//   }
//
// Without a graph, a step makes the calls of an ordinary loop: the model in the Accelerator's
// precision, backward(), clipping, optimizer.step(), optimizer.zero_grad(). So it works on every
// device and in every number of processes. A step with a graph has the same bits. An optimizer that
// can do so clips while it steps, which saves a pass over memory and may differ from
// clip_grad_norm_() in rounding.
//
// A graph repeats kernels with the addresses and the numbers that the host passed when the step was
// recorded. The loss function must therefore compute only with the tensors of its batch and of the
// model: a number of the host that changes from step to step would keep its first value. Batches
// must be on the device, and consist of tensors: a TensorDict, a tensor, a torch::data::Example, a
// pair of tensors, or a vector of tensors, none of which is sparse or nested. There is one graph
// for each shape of a step, for at most 8 shapes. The first three steps, and the first step of each
// shape, run without a graph, and so do steps while an anatomy records. If the program has frozen
// or unfrozen a parameter, replaced a tensor or a module, or changed an option of the optimizer
// other than the learning rate, one step of each shape runs without a graph and the next one is
// recorded again. missing_graph_reason() says why steps have no graph: several processes, fp16, an
// optimizer that does not implement CapturableOptimizer, as hasten::AdamW does, step_in_backward,
// offload_optimizer_states, a hook, another type of batch, a CPU, or a step that reads a number
// from the device. The first reason is logged once as a warning.
//
// Throws what the calls of the loop throw (hasten/accelerator.h), and UsageError
// "prepare.accumulation-steps", "prepare.elastic-loop", "prepare.no-loss" and, for clipping with
// step_in_backward, "prepare.step-in-backward". After a step that threw, the next one begins anew:
// its window contains no micro-batch of the step that threw. (With step_in_backward, a pass that
// threw has stepped some parameters already, and further steps are refused.) Thread rule: that of
// the Accelerator; no other thread may use the device while a step is recorded. Source:
// torch.cuda.graphs, "whole network capture"; docs/design/024.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/any_batch.h"
#include "hasten/device/detail/deferred_scalar.h"
#include "hasten/prepare/detail/compute_loss.h"
#include "hasten/prepare/detail/prepared.h"

namespace hasten {

struct TrainingStepOptions {
  // Scales the gradients so that their norm is at most this number. 0 leaves them as they are.
  double max_grad_norm = 0;
};

struct StepResult {
  // The mean loss of the micro-batches, before the step.
  DeferredScalar loss;
  // The norm of the gradients before clipping; 0 without clipping.
  DeferredScalar grad_norm;
};

class HASTEN_API TrainingStep {
 public:
  // Accelerator::training_step calls it.
  TrainingStep(std::shared_ptr<AcceleratorState> state, std::shared_ptr<torch::nn::Module> model,
               PreparedOptimizer optimizer, LossFunction compute_loss,
               const TrainingStepOptions& options);
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;
  ~TrainingStep();

  // Trains on one batch, and clears the gradients.
  template <class Batch>
  StepResult operator()(const Batch& batch) {
    return run({AnyBatch(batch)});
  }
  // Trains on the micro-batches of one accumulation window, which have equal weights. There are at
  // most AcceleratorOptions::gradient_accumulation_steps.
  template <class Batch>
  StepResult run_window(const std::vector<Batch>& micro_batches) {
    std::vector<AnyBatch> erased;
    erased.reserve(micro_batches.size());
    for (const Batch& each : micro_batches) erased.emplace_back(each);
    return run(std::move(erased));
  }

  // True if a graph has run the latest step.
  bool used_graph() const;
  // Returns why steps have no graph. Empty if they have one, or may still get one.
  const std::string& missing_graph_reason() const;

 private:
  class Impl;
  StepResult run(std::vector<AnyBatch> micro_batches);

  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
