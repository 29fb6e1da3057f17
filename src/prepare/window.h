// File: prepare/window.h (internal)
// One accumulation window: the micro-batches whose gradients one optimizer step uses
// (docs/design/003).
//
// A window is open from its first micro-batch until it is closed, which divides its gradients by
// its weight. It is due from the beginning of its last micro-batch on. It refers to its models
// weakly: a window whose model has been destroyed is dropped, and a new model at the same address
// begins a window of its own.
#pragma once

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "optim/distinct.h"

namespace hasten {

using Models = std::vector<std::shared_ptr<torch::nn::Module>>;

class Window {
 public:
  explicit Window(const Models& models) : models_(models.begin(), models.end()) {}

  // Whether one of its models has been destroyed.
  bool is_dead() const {
    return std::any_of(models_.begin(), models_.end(),
                       [](const auto& each) { return !each.lock(); });
  }
  bool has_model(const torch::nn::Module* module) const {
    return std::any_of(models_.begin(), models_.end(),
                       [&](const auto& each) { return each.lock().get() == module; });
  }
  bool is_of(const Models& models) const {
    return models.size() == models_.size() &&
           std::all_of(models.begin(), models.end(),
                       [&](const auto& each) { return has_model(each.get()); });
  }
  // The parameters of its models, each once.
  std::vector<at::Tensor> parameters() const {
    TensorSet seen;
    std::vector<at::Tensor> all;
    for (const auto& each : models_) {
      const auto model = each.lock();
      if (!model) continue;
      for (at::Tensor& parameter : distinct(model->parameters(), seen))
        all.push_back(std::move(parameter));
    }
    return all;
  }
  bool has_one_of(const std::vector<at::Tensor>& tensors) {
    if (known_.empty()) {
      for (const at::Tensor& parameter : parameters())
        known_.insert(parameter.unsafeGetTensorImpl());
    }
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
      return known_.count(tensor.unsafeGetTensorImpl()) > 0;
    });
  }

  // A micro-batch begins, the first of a new window where the last one was closed.
  void begin_micro_batch(std::int64_t most, bool last_of_data) {
    if (closed_) {
      restart();
      known_.clear();  // a model may have other parameters by now
      begun_ = 0;
    }
    ++begun_;
    passes_ = 0;
    due_ = last_of_data || begun_ >= most;
  }
  // Its gradients are computed anew: the pass before was another one of the same micro-batch.
  void restart() {
    batches = passes_ = 0;
    weight = weight_of_all = 0;
    closed_ = false;
  }
  // A backward pass of this micro-batch; true for its first one, which adds its weight. Several
  // losses of a micro-batch share that weight.
  bool count_pass(double of_micro_batch) {
    const bool first = passes_++ == 0 && !closed_;
    if (first) {
      ++batches;
      weight += of_micro_batch;
    }
    return first;
  }
  void close() { closed_ = due_ = true; }

  // The micro-batch at hand is the last one.
  bool is_due() const { return due_; }
  bool is_closed() const { return closed_; }
  // An optimizer that stepped now would use a part of the window.
  bool waits() const { return begun_ > 0 && !due_ && !closed_; }
  // It has gradients that are not yet what a step uses.
  bool holds_gradients() const { return batches > 0 && !closed_; }

  std::int64_t batches = 0;  // micro-batches that had a backward pass
  double weight = 0;         // the sum of their weights in this process
  double weight_of_all = 0;  // and in all processes, from the closing pass on

 private:
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  TensorSet known_;
  std::int64_t begun_ = 0, passes_ = 0;  // micro-batches; passes of the one at hand
  bool due_ = false, closed_ = false;
};

}  // namespace hasten
