// File: prepare/accumulation_window.h (internal)
// One accumulation window: the micro-batches whose gradients one optimizer step uses
// (docs/design/003). It counts them, and does not depend on how gradients are computed or
// exchanged.
//
//   AccumulationWindow window(models);
//   window.begin_micro_batch(/*capacity=*/2, /*last_of_data=*/false, /*rows=*/8);
//   window.count_pass(1.0);
//   if (window.is_due()) window.close();
//
// A window is open from its first micro-batch until it is closed. Closing it determines the weight
// that its gradients are divided by. It is due from the start of its last micro-batch. With several
// processes, the first pass from then on that reaches a model exchanges and divides the gradients
// of this model. References to models are weak: if a model is destroyed, its window is dropped, and
// a new model at the same address begins its own window. Thread rule: a value.
#pragma once

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "optim/distinct.h"

namespace hasten {

using Models = std::vector<std::shared_ptr<torch::nn::Module>>;

class AccumulationWindow {
 public:
  explicit AccumulationWindow(const Models& models) : models_(models.begin(), models.end()) {}

  // True if one of its models has been destroyed.
  bool has_destroyed_model() const {
    return std::any_of(models_.begin(), models_.end(),
                       [](const auto& each) { return !each.lock(); });
  }
  bool has_model(const torch::nn::Module* module) const {
    return std::any_of(models_.begin(), models_.end(),
                       [&](const auto& each) { return each.lock().get() == module; });
  }
  bool has_same_models(const Models& models) const {
    return models.size() == models_.size() &&
           std::all_of(models.begin(), models.end(),
                       [&](const auto& each) { return has_model(each.get()); });
  }
  // The parameters of its models, and those that were added. Each is listed once.
  std::vector<at::Tensor> parameters() const {
    TensorSet seen;
    std::vector<at::Tensor> all;
    for (const auto& each : models_) {
      const auto model = each.lock();
      if (!model) continue;
      for (at::Tensor& parameter : distinct(model->parameters(), seen))
        all.push_back(std::move(parameter));
    }
    for (at::Tensor& parameter : distinct(added_parameters_, seen))
      all.push_back(std::move(parameter));
    return all;
  }
  bool has_parameter(const at::Tensor& tensor) {
    if (parameter_set_.empty()) distinct(parameters(), parameter_set_);
    return parameter_set_.count(tensor.unsafeGetTensorImpl()) > 0;
  }
  bool has_one_of(const std::vector<at::Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const at::Tensor& tensor) { return has_parameter(tensor); });
  }
  // Adds parameters that belong to no model but get gradients in this window.
  void add_parameters(const std::vector<at::Tensor>& others) {
    added_parameters_.insert(added_parameters_.end(), others.begin(), others.end());
    if (!parameter_set_.empty()) distinct(others, parameter_set_);
  }

  // Begins a micro-batch, in a new window if the last one was closed. `capacity` is the number of
  // micro-batches of a full window, and `rows` is the number of rows of this micro-batch, or 0 if
  // it is not known.
  void begin_micro_batch(std::int64_t capacity, bool last_of_data, std::int64_t rows) {
    capacity_ = capacity;
    if (counts_.closed) {
      counts_ = {};
      added_parameters_.clear();
      parameter_set_.clear();  // a model may now have different parameters
    }
    ++counts_.begun;
    counts_.passes = 0;
    counts_.rows += rows;
    counts_.due = last_of_data || counts_.begun >= capacity;
  }
  // Forgets the earlier pass of this micro-batch, because its gradients are computed again.
  void restart() { counts_ = {.begun = counts_.begun, .rows = counts_.rows, .due = counts_.due}; }
  // Counts a backward pass. Returns true for the first pass of a micro-batch, which adds the weight
  // of the micro-batch. Several losses share that weight.
  bool count_pass(double micro_batch_weight) {
    const bool first = counts_.passes++ == 0 && !counts_.closed;
    if (first) {
      ++counts_.batches;
      counts_.weight += micro_batch_weight;
    }
    return first;
  }
  // Closes the window with the sum of its weights over all processes.
  void close(double total_weight) {
    close();
    counts_.total_weight = total_weight;
  }
  // Closes a window whose gradients are not exchanged.
  void close() { counts_.closed = counts_.due = true; }
  // Call it when a step has used the gradients, or when they have been dropped.
  void mark_used() { counts_.used = true; }

  // True if this model's gradients have been exchanged in this window.
  bool has_exchanged(const torch::nn::Module* module) const {
    return std::find(counts_.exchanged.begin(), counts_.exchanged.end(), module) !=
           counts_.exchanged.end();
  }
  void mark_exchanged(const torch::nn::Module* module) {
    if (!has_exchanged(module)) counts_.exchanged.push_back(module);
  }

  // The number of micro-batches of a full window.
  std::int64_t capacity() const { return capacity_; }
  // The number of micro-batches that have begun.
  std::int64_t begun() const { return counts_.begun; }
  // The number of micro-batches that had a backward pass.
  std::int64_t batches() const { return counts_.batches; }
  // The sum of their weights in this process.
  double weight() const { return counts_.weight; }
  // The sum of weight() over all processes. It is known once the window is closed.
  double total_weight() const { return counts_.total_weight; }
  // True from the start of its last micro-batch.
  bool is_due() const { return counts_.due; }
  bool is_closed() const { return counts_.closed; }
  // True if a step would now use only a part of the window.
  bool is_incomplete() const { return counts_.begun > 0 && !counts_.due && !counts_.closed; }
  // True from its last micro-batch until a step has used its gradients, or they have been dropped.
  bool awaits_step() const { return counts_.due && counts_.batches > 0 && !counts_.used; }
  // True if it has gradients that a step cannot use yet.
  bool holds_gradients() const { return counts_.batches > 0 && !counts_.closed; }

  // The state that a backward pass changes. Restoring it undoes a pass that threw.
  struct Counts {
    std::int64_t begun = 0, batches = 0, passes = 0;  // passes of the current micro-batch
    std::int64_t rows = 0;                            // of the micro-batches that have begun
    double weight = 0, total_weight = 0;
    bool due = false, closed = false, used = false;
    std::vector<const torch::nn::Module*> exchanged;
  };
  const Counts& counts() const { return counts_; }
  void restore(Counts counts) { counts_ = std::move(counts); }

 private:
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  std::vector<at::Tensor> added_parameters_;
  TensorSet parameter_set_;
  std::int64_t capacity_ = 1;
  Counts counts_;
};

}  // namespace hasten
