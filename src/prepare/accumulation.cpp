#include "prepare/accumulation.h"

#include <torch/torch.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"

namespace hasten {

Accumulation::Accumulation(std::int64_t steps) { set_steps(steps); }

void Accumulation::set_steps(std::int64_t steps) {
  if (steps < 1) {
    throw UsageError(
        "prepare.accumulation-steps",
        {.what = "gradient_accumulation_steps", .got = str(steps), .expected = "1 or more"});
  }
  drop_windows();
  steps_ = steps;
}

void Accumulation::add_model(const std::shared_ptr<torch::nn::Module>& module) {
  const auto is_known = [&](const auto& model) { return model.lock() == module; };
  if (std::none_of(models_.begin(), models_.end(), is_known)) models_.push_back(module);
}

void Accumulation::remove_model(const torch::nn::Module* module) {
  std::erase_if(models_, [&](const auto& each) { return each.lock().get() == module; });
}

void Accumulation::drop_destroyed_models() {
  std::erase_if(models_, [](const auto& each) { return each.expired(); });
  std::erase_if(windows_, [](const auto& each) { return each->has_destroyed_model(); });
  if (window_ && !inside_ && window_->has_destroyed_model()) window_.reset();
}

void Accumulation::drop_windows() {
  windows_.clear();
  window_.reset();
  excluded_parameters_.clear();
  inside_ = false;
}

void Accumulation::drop_windows_of(const std::vector<at::Tensor>& parameters) {
  std::erase_if(windows_, [&](const auto& window) { return window->has_one_of(parameters); });
  if (window_ && window_->has_one_of(parameters)) window_.reset();
}

void Accumulation::check_not_inside() const {
  if (!inside_) return;
  throw UsageError("prepare.nested-accumulate", {.what = "accumulate() inside accumulate()",
                                                 .hint = "pass all models of a step to one call"});
}

AccumulationWindow& Accumulation::enter(const Models& models) {
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const auto& each) { return each->has_same_models(models); });
  if (found == windows_.end()) {
    replace_overlapping_windows(models);
    window_ = windows_.emplace_back(std::make_shared<AccumulationWindow>(models));
  } else {
    window_ = *found;
  }
  return *window_;
}

void Accumulation::begin_micro_batch(bool last_of_data, std::int64_t rows) {
  inside_ = true;
  window_->begin_micro_batch(steps_, last_of_data, rows);
}

void Accumulation::leave_unless_inside() {
  if (!inside_) window_.reset();
}

// Drops windows that share parameters with these models, because both windows would divide the
// gradients. Throws if such a window holds gradients.
void Accumulation::replace_overlapping_windows(const Models& models) {
  if (windows_.empty()) return;
  const std::vector<at::Tensor> parameters = AccumulationWindow(models).parameters();
  for (const auto& window : windows_) {
    if (!window->holds_gradients() || !window->has_one_of(parameters)) continue;
    throw UsageError(
        "prepare.shared-window",
        {.what = "accumulate() of models that share parameters with another accumulation window",
         .got = str("an open window, in micro-batch ", window->begun(), " of ", steps_),
         .expected = "the same models in every accumulate() of a window",
         .hint = "in each micro-batch, pass accumulate() all models that the losses of the window "
                 "train; or drop the window with accelerator.free_memory() and zero_grad()"});
  }
  std::erase_if(windows_, [&](const auto& window) { return window->has_one_of(parameters); });
}

void Accumulation::drop_abandoned_windows(const BackwardPass& pass) {
  const auto is_abandoned = [](const auto& window) {
    return window->is_incomplete() && !window->holds_gradients();
  };
  if (std::none_of(windows_.begin(), windows_.end(), is_abandoned)) return;
  const std::vector<at::Tensor> leaves = tensors_of(pass.leaves());
  std::erase_if(windows_, [&](const auto& window) {
    return is_abandoned(window) && window->has_one_of(leaves);
  });
}

// If models train in turn (a GAN), a pass of one model would otherwise leave gradients in the
// others, and their next step would use them.
std::vector<at::Tensor> Accumulation::trained_leaves(const at::Tensor& loss) {
  const std::vector<at::Tensor> others = excluded_parameters();
  if (others.empty()) return {};
  Leaves leaves = reached_leaves(loss);
  const std::size_t reached = leaves.size();
  for (const at::Tensor& other : others) {
    if (leaves.erase(other.unsafeGetTensorImpl()) > 0 && inside_)
      excluded_parameters_.insert(other.unsafeGetTensorImpl());
  }
  if (leaves.size() == reached) return {};
  if (!leaves.empty()) return tensors_of(leaves);
  if (inside_) {
    throw UsageError("prepare.outside-loss",
                     {.what = "backward(loss) inside accumulate()",
                      .got = "a loss that reaches only other prepared models",
                      .expected = "a loss of the models that were passed to accumulate()",
                      .hint = "pass accumulate() all models that the loss is to train"});
  }
  throw UsageError(
      "prepare.open-window",
      {.what = "backward(loss) outside accumulate()",
       .got = "a loss of a model whose accumulation window is open",
       .expected = "a window that is full, or that ended with the last batch of a prepared loader",
       .hint = "call it inside accumulate() too, or drop the window with accelerator.free_memory() "
               "and zero_grad()"});
}

std::vector<at::Tensor> Accumulation::excluded_parameters() const {
  if (models_.size() < 2 && (inside_ || windows_.empty())) return {};
  const auto is_excluded = [&](const torch::nn::Module* module) {
    if (inside_) return !window_->has_model(module);
    return std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
      return window->holds_gradients() && window->has_model(module);
    });
  };
  Models trained, others;
  for (const auto& each : models_) {
    if (auto model = each.lock())
      (is_excluded(model.get()) ? others : trained).push_back(std::move(model));
  }
  if (others.empty()) return {};
  // Parameters that belong to a trained model and to another one are trained.
  TensorSet seen;
  for (const auto& model : trained) distinct(model->parameters(), seen);
  std::vector<at::Tensor> all;
  for (const auto& model : others) {
    for (at::Tensor& parameter : distinct(model->parameters(), seen))
      all.push_back(std::move(parameter));
  }
  return all;
}

bool Accumulation::has_incomplete_window(const std::vector<at::Tensor>& parameters) const {
  bool has_window = false;
  for (const auto& window : windows_) {
    if (!window->has_one_of(parameters)) continue;
    if (window->is_incomplete()) return true;
    has_window = true;
  }
  // Parameters without a window, such as those of a loss function that no pass has reached yet,
  // follow the active accumulate() scope.
  return !has_window && inside_ && window_->is_incomplete();
}

bool Accumulation::has_incomplete_window(const torch::nn::Module* module) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
    return window->has_model(module) && window->is_incomplete();
  });
}

std::vector<std::shared_ptr<AccumulationWindow>> Accumulation::open_windows() const {
  std::vector<std::shared_ptr<AccumulationWindow>> open;
  std::copy_if(windows_.begin(), windows_.end(), std::back_inserter(open),
               [](const auto& window) { return window->is_incomplete() || window->awaits_step(); });
  return open;
}

void Accumulation::add_incomplete_window(const Models& models, AccumulationWindow::Counts counts) {
  windows_.push_back(std::make_shared<AccumulationWindow>(models));
  windows_.back()->restore(std::move(counts));
}

bool Accumulation::holds_gradients_of(const std::vector<at::Tensor>& parameters) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
    return window->holds_gradients() && window->has_one_of(parameters);
  });
}

std::vector<std::shared_ptr<AccumulationWindow>> Accumulation::due_windows_of(
    const std::vector<at::Tensor>& parameters) const {
  std::vector<std::shared_ptr<AccumulationWindow>> due;
  for (const auto& window : windows_) {
    if (window->is_due() && window->has_one_of(parameters)) due.push_back(window);
  }
  return due;
}

std::shared_ptr<AccumulationWindow> Accumulation::open_window_of(
    const std::vector<const torch::nn::Module*>& models) const {
  for (const auto& window : windows_) {
    if (!window->holds_gradients()) continue;
    for (const torch::nn::Module* const model : models) {
      if (window->has_model(model)) return window;
    }
  }
  return nullptr;
}

void Accumulation::mark_gradients_used() {
  if (!window_) return;
  window_->close();
  window_->mark_used();
}

void Accumulation::mark_gradients_used(const std::vector<at::Tensor>& parameters) const {
  for (const auto& window : due_windows_of(parameters)) window->mark_used();
}

void Accumulation::restart_windows(const std::vector<at::Tensor>& parameters) {
  for (const auto& window : windows_) {
    if (!window->has_one_of(parameters)) continue;
    if (!inside_ || window != window_) {
      window->close();
    } else if (steps_ == 1) {
      window->restart();
    } else {
      throw UsageError("prepare.closure-in-window",
                       {.what = "optimizer.step(closure) inside accumulate()",
                        .expected = "accumulate() inside the closure, for each micro-batch",
                        .hint = "let the closure evaluate the whole window, because the optimizer "
                                "calls it several times in a step"});
    }
  }
}

std::size_t Accumulation::take_untrained(const std::vector<at::Tensor>& parameters) {
  if (excluded_parameters_.empty()) return 0;
  const auto is_untrained = [&](const at::Tensor& parameter) {
    if (excluded_parameters_.count(parameter.unsafeGetTensorImpl()) == 0) return false;
    return std::none_of(windows_.begin(), windows_.end(),
                        [&](const auto& window) { return window->has_one_of({parameter}); });
  };
  const auto untrained = std::count_if(parameters.begin(), parameters.end(), is_untrained);
  excluded_parameters_.clear();
  return static_cast<std::size_t>(untrained);
}

}  // namespace hasten
