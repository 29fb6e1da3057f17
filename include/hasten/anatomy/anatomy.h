// File: hasten/anatomy/anatomy.h
// Records where the memory and the operations of a training step go, for any LibTorch model.
//
//   auto anatomy = accelerator.anatomy();       // knows what the Accelerator has prepared
//   for (auto& batch : train_loader) train_on(batch);
//   std::cout << to_text(anatomy.report());
//
// Without an Accelerator, name the model and the optimizer, and mark the phases of a step:
//
//   Anatomy own;
//   own.watch(*net);
//   own.watch(adamw);
//   at::Tensor loss;
//   for (auto& batch : batches) {
//     adamw.zero_grad();
//     { auto phase = own.forward(); loss = loss_of(net->forward(batch.data), batch.target); }
//     { auto phase = own.backward(); loss.backward(); }
//     { auto phase = own.optimizer(); adamw.step(); }
//     own.step();
//   }
//
// An Anatomy observes LibTorch's allocator, its operators, and the tensors that autograd saves for
// the backward pass. It starts when it is constructed and ends after `steps` optimizer steps, at
// report(), or when it is destroyed.
//
// Cost: nothing while no Anatomy exists, and a few microseconds per operator while one does. A
// process can have one at a time; a second throws UsageError "anatomy.nested". Thread rule:
// construct, use and destroy it on the training thread. Autograd's threads are observed too;
// allocations of other threads are not.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hasten/anatomy/detail/component.h"
#include "hasten/anatomy/report.h"
#include "hasten/base/detail/export.h"
#include "hasten/prepare/detail/step_observer.h"

namespace hasten {

// An allocation on the model's device, for AnatomyOptions::exceeds_limit.
struct ObservedAllocation {
  std::int64_t bytes = 0;
  std::int64_t live = 0;  // Bytes of all allocations, including this one.
  anatomy::Phase phase = anatomy::Phase::other;
};

struct AnatomyOptions {
  std::int64_t steps = 3;  // Optimizer steps to record; 0 records until the Anatomy ends.
  bool operations = true;  // False records memory only.
  // Returns true for the allocation at which memory runs out: Memory::out_of_memory then describes
  // it. It is called for each allocation until it has returned true, while allocations are locked.
  // A limit of 1 GiB: [](const ObservedAllocation& a) { return a.live > std::int64_t{1} << 30; }
  std::function<bool(const ObservedAllocation&)> exceeds_limit = {};
};

class HASTEN_API Anatomy {
 public:
  explicit Anatomy(AnatomyOptions options = {}, std::shared_ptr<StepObservers> observers = nullptr);
  Anatomy(Anatomy&&) noexcept;
  Anatomy& operator=(Anatomy&&) = delete;
  ~Anatomy();

  // Names a model whose layers are reported separately, and the optimizer that trains it. Both must
  // outlive the Anatomy. The Anatomy already knows objects that an Accelerator has prepared.
  void watch(torch::nn::Module& model);
  void watch(torch::optim::Optimizer& optimizer);
  // Names the tensors of a batch. Their memory counts as Component::functionality. The size of the
  // first dimension of the first tensor that has dimensions counts as the number of samples.
  void watch_batch(const std::vector<at::Tensor>& tensors);

  // Assigns tensors to Component::functionality, such as caches of keys and values or the beams of
  // a search. Call it again whenever they are reallocated.
  void watch_functionality(const std::vector<at::Tensor>& tensors);

  // Each function returns a scope: what runs until the end of the block belongs to this phase of
  // the step.
  PhaseScope forward() const { return {*observers_, StepPhase::forward}; }
  PhaseScope backward() const { return {*observers_, StepPhase::backward}; }
  PhaseScope optimizer() const { return {*observers_, StepPhase::optimizer}; }
  // Reports that an optimizer step has ended.
  void step();

  // True once the recording has ended.
  bool finished() const;
  // The layer that runs now, for messages. Empty outside of layers and when no Anatomy is
  // recording.
  static std::string current_module();
  // Ends the recording and returns what was recorded.
  anatomy::Report report();

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<StepObservers> observers_;  // The Accelerator's, or its own.
  // These pointers do not own the optimizers; the Recorder has weak references to them.
  std::vector<std::shared_ptr<torch::optim::Optimizer>> watched_;
};

}  // namespace hasten
