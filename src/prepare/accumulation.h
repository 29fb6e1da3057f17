// File: prepare/accumulation.h (internal)
// The accumulation windows of the models of one Accelerator. It knows the window of a micro-batch,
// whether a step may use the gradients, and the parameters that a backward pass trains
// (docs/design/003).
//
//   Accumulation accumulation(/*steps=*/2);
//   accumulation.enter(models);
//   accumulation.begin_micro_batch(/*last_of_data=*/false, /*rows=*/8);
//   accumulation.has_incomplete_window(parameters);  // true
//   accumulation.end_micro_batch();
//
// A window closes after `steps` micro-batches or with the last batch of the loader, whichever comes
// first, so it is never longer than the data. Each model (or group of models) that is passed to
// accumulate() has its own window. Throws UsageError "prepare.*" (docs/errors.md). Thread rule: one
// thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "prepare/accumulation_window.h"
#include "prepare/backward_pass.h"

namespace hasten {

class Accumulation {
 public:
  // `steps` is the largest number of micro-batches in a window. Throws
  // "prepare.accumulation-steps".
  explicit Accumulation(std::int64_t steps);

  std::int64_t steps() const { return steps_; }
  // Sets the largest number of micro-batches in a window, and drops all windows.
  void set_steps(std::int64_t steps);

  // Adds a prepared model, unless it was added before.
  void add_model(const std::shared_ptr<torch::nn::Module>& module);
  void remove_model(const torch::nn::Module* module);
  // Drops destroyed models and their windows.
  void drop_destroyed_models();
  // Drops all windows. The models stay.
  void drop_windows();
  // Drops the windows that have one of these parameters.
  void drop_windows_of(const std::vector<at::Tensor>& parameters);

  // Throws "prepare.nested-accumulate" inside a micro-batch.
  void check_not_inside() const;
  // Makes the window of these models the current one, and returns it. Creates a window if they have
  // none. Throws "prepare.shared-window".
  AccumulationWindow& enter(const Models& models);
  // Begins a micro-batch of the current window; see AccumulationWindow::begin_micro_batch.
  void begin_micro_batch(bool last_of_data, std::int64_t rows);
  void end_micro_batch() { inside_ = false; }
  // True inside accumulate().
  bool is_inside() const { return inside_; }
  // The window of the latest micro-batch, or null if it had none.
  AccumulationWindow* current() const { return window_.get(); }
  // Call it before a backward pass, because outside accumulate() there is no current window.
  void leave_unless_inside();

  // True if the latest micro-batch is the last one of its window, and true after a backward pass
  // that belongs to no window.
  bool sync_gradients() const { return !window_ || window_->is_due(); }
  // True if a window of these parameters, or of this model, waits for more micro-batches.
  bool has_incomplete_window(const std::vector<at::Tensor>& parameters) const;
  bool has_incomplete_window(const torch::nn::Module* module) const;
  // True if clearing these gradients now would lose a part of an open window.
  bool holds_gradients_of(const std::vector<at::Tensor>& parameters) const;
  // The windows that wait for more micro-batches or for their step.
  std::vector<std::shared_ptr<AccumulationWindow>> open_windows() const;
  // Adds a window from a checkpoint. It waits for more micro-batches of these models.
  void add_incomplete_window(const Models& models, AccumulationWindow::Counts counts);
  // The windows of these parameters that have begun their last micro-batch.
  std::vector<std::shared_ptr<AccumulationWindow>> due_windows_of(
      const std::vector<at::Tensor>& parameters) const;
  // The first window that holds gradients and has one of these models, or null if there is none.
  std::shared_ptr<AccumulationWindow> open_window_of(
      const std::vector<const torch::nn::Module*>& models) const;

  // Call it after the gradients of the latest window have been used.
  void mark_gradients_used();
  // Call it after a step of these parameters, or after their gradients have been cleared.
  void mark_gradients_used(const std::vector<at::Tensor>& parameters) const;
  // Call it before an optimizer that evaluates its closure several times computes the gradients of
  // a step again. Throws "prepare.closure-in-window".
  void restart_windows(const std::vector<at::Tensor>& parameters);
  // Drops windows that hold no gradients and have parameters that this pass reaches. They remain if
  // a loop ends before the first backward pass of a window. Their models then train outside of
  // accumulate(), and must be able to step.
  void drop_abandoned_windows(const BackwardPass& pass);

  // Returns the leaves that get gradients. Empty means all leaves that the loss reaches. Inside
  // accumulate() a pass leaves out prepared models that were not passed to accumulate(). Outside of
  // accumulate() it leaves out models with an open window. Throws "prepare.outside-loss",
  // "prepare.open-window".
  std::vector<at::Tensor> trained_leaves(const at::Tensor& loss);
  // Returns how many of these parameters losses inside accumulate() have reached but not trained
  // since the last call.
  std::size_t take_untrained(const std::vector<at::Tensor>& parameters);

 private:
  void replace_overlapping_windows(const Models& models);
  std::vector<at::Tensor> excluded_parameters() const;

  std::int64_t steps_;
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  std::vector<std::shared_ptr<AccumulationWindow>> windows_;
  // The current one of these windows, unless its model was destroyed inside accumulate().
  std::shared_ptr<AccumulationWindow> window_;
  bool inside_ = false;
  // Parameters that losses inside accumulate() have reached but not trained since the last step.
  std::unordered_set<const void*> excluded_parameters_;
};

}  // namespace hasten
