// File: hasten/anatomy/anatomy.h
// Where every byte and every operation of a training step goes, for any LibTorch model.
//
//   auto anatomy = accelerator.anatomy();         // or Anatomy anatomy; anatomy.watch(*net,
//   &adamw); for (auto& batch : train_loader) { ... } std::cout << to_text(anatomy.report());
//
// Listens to LibTorch's allocator, to its operators and to what autograd saves for the backward
// pass, from its construction until `steps` optimizer steps have been made or it is destroyed. What
// was prepared by the Accelerator is known; else watch() names it. Without an Accelerator the
// phases are told by AnatomyPhase scopes around forward, backward and step.
//
// Off (no Anatomy alive) it costs nothing; on, some microseconds an operator. One at a time in a
// process: a second is UsageError "anatomy.nested". Thread rule: made, used and destroyed on the
// thread that trains; autograd's threads are heard, other threads' allocations are not.
#pragma once

#include <memory>
#include <string>

#include "hasten/anatomy/component.h"
#include "hasten/anatomy/report.h"
#include "hasten/prepare/step_observer.h"

namespace hasten {

struct AnatomyOptions {
  std::int64_t steps = 3;  // optimizer steps to look at; 0: until the end of the scope
  bool operations = true;  // count operations too; false: memory alone
};

class Anatomy {
 public:
  explicit Anatomy(AnatomyOptions options = {}, std::shared_ptr<StepObservers> observers = nullptr);
  Anatomy(Anatomy&&) noexcept;
  Anatomy& operator=(Anatomy&&) = delete;
  ~Anatomy();

  // A model whose layers are to be told apart, and the optimizer that trains it; both outlive the
  // Anatomy.
  void watch(torch::nn::Module& model);
  void watch(torch::optim::Optimizer& optimizer);
  // A batch: its memory is functionality-specific, its rows are samples.
  void watch_batch(const std::vector<at::Tensor>& tensors);

  // Tensors with a function of their own, caches of keys and values or the beams of a search: to be
  // told whenever they are made anew.
  void watch_functionality(const std::vector<at::Tensor>& tensors);

  // The rest of the block belongs to this phase of the step.
  PhaseScope forward() const { return {*observers_, StepPhase::forward}; }
  PhaseScope backward() const { return {*observers_, StepPhase::backward}; }
  PhaseScope optimizer() const { return {*observers_, StepPhase::optimizer}; }
  // An optimizer step is over.
  void step();

  bool finished() const;
  // The layer in which the program stands now, for messages; empty outside of layers, and where no
  // Anatomy listens.
  static std::string current_module();
  // What was found so far; ends the listening.
  anatomy::Report report();

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<StepObservers> observers_;  // an Accelerator's, or its own
};

}  // namespace hasten
