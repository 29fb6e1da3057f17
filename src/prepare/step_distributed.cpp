// The part of Step that exchanges gradients between processes.
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/step.h"
#include "prepare/data_parallel.h"
#include "prepare/join.h"
#include "prepare/pass.h"
#include "prepare/pass_order.h"
#include "prepare/window.h"

namespace hasten {

// Does what backward_local does, over all processes: gradients are sums of loss gradients times
// their weights, which the buckets divide once, by the sum of all weights.
void Step::backward_distributed(const Pass& pass) {
  if (!window_) return exchange_pass(pass);
  const bool first = window_->count_pass(pass.weight);
  if (window_->is_due()) return exchange_at_end(pass, first);
  // After an early exchange all have the same share of the sum, which the window's end divides.
  const bool early = std::any_of(parallel_.begin(), parallel_.end(), [](const auto& model) {
    return model->synchronization == Synchronization::now;
  });
  const auto models = early ? models_to_exchange(pass) : std::vector<DataParallel*>{};
  if (!models.empty()) {
    if (join_) announce_backward(models, JoinPass::early, /*sums_weights=*/false);
    const auto size = static_cast<double>(group.size());
    return reduce(models, &pass, pass.weight, pass.weight, 1.0 / size);
  }
  if (pass.weight > 0) add_gradients(pass, pass.weight);
}

// Exchanges a pass of no window. Weights are summed over the processes only if some may be out of
// data or if weights may differ.
void Step::exchange_pass(const Pass& pass) {
  const std::vector<DataParallel*> models = models_to_exchange(pass);
  const bool announces = join_ && !models.empty();
  if (announces) announce_backward(models, JoinPass::without_window, /*sums_weights=*/true);
  const bool differs = join_ ? announces : pass.by_items;
  const double all = total_weight(pass.weight, differs);
  weight_share_ = all > 0 ? pass.weight / all : 0;
  reduce(models, &pass, pass.weight, 1.0, *weight_share_);
}

// Exchanges a pass of a window's last micro-batch.
void Step::exchange_at_end(const Pass& pass, bool first) {
  const std::vector<DataParallel*> models = models_to_exchange(pass);
  // Processes without data do not take part in a collective that no exchange needs.
  const bool announces = join_ ? !models.empty() : announces_models(*window_);
  if (announces) announce_backward(models, JoinPass::closing, /*sums_weights=*/first);
  if (first) {
    // Processes may differ in which micro-batches had a backward pass.
    const bool differs = join_ ? announces : pass.by_items || accumulation_steps > 1;
    window_->close(total_weight(window_->weight(), differs));
  }
  const double all = window_->total_weight();
  weight_share_ = all > 0 ? window_->weight() / all : 0;
  exchange_window(*window_, models, &pass);
}

double Step::total_weight(double own, bool differs) {
  if (!differs) return own * static_cast<double>(group.size());
  return group.reduce(at::scalar_tensor(own, at::kDouble)).item<double>();
}

// Exchanges models of a closed window. Their gradients are sums over this process's micro-batches
// or, once exchanged, what all processes have in common.
void Step::exchange_window(Window& window, const std::vector<DataParallel*>& models,
                           const Pass* pass) {
  const double all = window.total_weight(), weight = pass ? pass->weight : 0;
  bool again = false;
  for (const DataParallel* const model : models) {
    if (!window.has_exchanged(model->module())) {
      window.note_exchange(model->module());
      continue;
    }
    again = true;
    if (all > 0) scale_gradients_(model->parameters(), all / static_cast<double>(group.size()));
  }
  if (all <= 0) return reduce(models, pass, 0, 1.0, 0);
  // With a single micro-batch the loss is not scaled.
  if (pass && window.batches() == 1 && !again)
    return reduce(models, pass, weight, 1.0, weight / all);
  reduce(models, pass, weight, weight, 1.0 / all);
}

// True if the processes announce to each other which models they are about to exchange at
// the window's end: a loss may reach only some of the models, and a process may have left
// the micro-batch out.
bool Step::announces_models(const Window& window) const {
  return accumulation_steps > 1 && models_at_end(window).size() > 1;
}

// Called before a step if the window's last micro-batch had no backward pass, or none that reached
// all of these parameters.
void Step::close(Window& window, const std::vector<at::Tensor>& parameters) {
  if (!window.is_closed()) divide_local(window, parameters);
  std::vector<DataParallel*> missing = models_at_end(window);
  if (missing.empty()) return window.close();
  std::erase_if(missing, [&](const DataParallel* model) {
    return window.has_exchanged(model->module()) || !model->has_one_of(parameters);
  });
  if (missing.empty()) return;
  if (accumulation_steps == 1) {
    if (window.is_closed()) return;  // its losses did not reach them
    throw UsageError(
        "prepare.open-window",
        {.what = str("an optimizer step on rank ", group.rank(),
                     " in a micro-batch without accelerator.backward()"),
         .expected = "a backward pass in every process, because the others wait for its gradients",
         .hint = "call accelerator.backward(loss * 0); or pass the number of items in every "
                 "process, which is 0 here; or skip the step in every process"});
  }
  if (join_ || announces_models(window)) return exchange_remaining(window, std::move(missing));
  window.close(total_weight(window.weight(), /*differs=*/true));
  exchange_window(window, missing, nullptr);
}

// Takes part in the passes of the others until these models have been exchanged. When no process
// has a pass left, all exchange the rest at once.
void Step::exchange_remaining(Window& window, std::vector<DataParallel*> missing) {
  while (!missing.empty()) {
    std::vector<DataParallel*> held = missing;
    std::erase_if(held, [](const DataParallel* model) { return !model->has_gradients(); });
    const bool sums_weights = !window.is_closed();
    announce_backward(held, JoinPass::catch_up, sums_weights);
    const bool is_last = message_exchange().leader_message().is_catch_up();
    const auto models = models_from_bits(message_exchange().announced_models());
    if (sums_weights) window.close(total_weight(window.weight(), /*differs=*/true));
    exchange_window(window, models, nullptr);
    if (is_last) {  // no process has gradients of the rest
      for (const DataParallel* const model : missing) window.note_exchange(model->module());
      return;
    }
    std::erase_if(missing,
                  [&](const DataParallel* model) { return window.has_exchanged(model->module()); });
  }
}

// Divides the gradients that no other process shares.
void Step::divide_local(Window& window, const std::vector<at::Tensor>& parameters) const {
  const double factor = window.weight() > 0 ? 1.0 / window.weight() : 1.0;
  if (parallel_.empty()) return scale_gradients_(window.parameters(), factor);
  for (const auto& model : parallel_) {
    if (model->synchronization != Synchronization::never) continue;
    const torch::nn::Module* const module = model->module();
    if (!window.has_model(module) || window.has_exchanged(module)) continue;
    if (!model->has_one_of(parameters)) continue;
    scale_gradients_(model->parameters(), factor);
    window.note_exchange(module);
  }
}

std::vector<DataParallel*> Step::models_at_end(const Window& window) const {
  std::vector<DataParallel*> models;
  for (const auto& model : parallel_) {
    const bool is_exchanged = model->synchronization == Synchronization::at_window_end ||
                              model->synchronization == Synchronization::now;
    if (is_exchanged && window.has_model(model->module())) models.push_back(model.get());
  }
  return models;
}

std::vector<DataParallel*> Step::models_of(const Pass& pass) const {
  std::vector<DataParallel*> models;
  for (const auto& model : parallel_) {
    if (!window_ || window_->has_model(model->module())) models.push_back(model.get());
  }
  if (parallel_.size() > 1 || pass.inputs_of_user) {
    const Leaves leaves = pass.leaves();
    std::erase_if(models, [&](const DataParallel* model) { return !model->has_one_of(leaves); });
  }
  return models;
}

std::vector<DataParallel*> Step::models_to_exchange(const Pass& pass) const {
  const bool closes = !window_ || window_->is_due();
  std::vector<DataParallel*> models = models_of(pass);
  std::erase_if(models, [&](const DataParallel* model) {
    return model->synchronization != Synchronization::now &&
           !(closes && model->synchronization == Synchronization::at_window_end);
  });
  return models;
}

void Step::reduce(const std::vector<DataParallel*>& models, const Pass* pass, double weight,
                  double share, double factor) {
  const bool adds = pass != nullptr && weight > 0;
  for (DataParallel* const model : models) model->update_parameters();
  // The leaves that the user restricted the pass to, or that get this process's zeros.
  std::optional<Leaves> some;
  if (pass != nullptr && (pass->inputs_of_user || (!adds && ddp_.find_unused_parameters)))
    some = pass->leaves();
  if (pass != nullptr && pass->inputs_of_user) {
    for (const DataParallel* const model : models) model->check_uses_all(*some);
  }
  const bool rounds = adds && has_16_bits(pass->loss);
  // If no parameter has a gradient yet, the loss takes the factor, which saves a pass
  // over the buckets.
  const bool fresh = !models.empty() && !rounds &&
                     std::none_of(models.begin(), models.end(),
                                  [](const auto* model) { return model->has_gradients(); });
  if (fresh) share *= std::exchange(factor, 1.0);
  std::vector<at::Tensor> outside_buckets;  // leaves of the pass that no bucket holds
  if (rounds && share != 1.0) {             // as in add_gradients; the buckets apply the share
    Leaves leaves = pass->leaves();
    for (const DataParallel* const model : models) {
      scale_gradients_(model->parameters(), 1.0 / share);
      for (const at::Tensor& each : model->parameters()) leaves.erase(each.unsafeGetTensorImpl());
    }
    outside_buckets = tensors_of(leaves);
    scale_gradients_(outside_buckets, 1.0 / share);
    factor *= share;
  }
  at::Tensor own;
  if (adds) {
    own = rounds || share == 1.0 ? pass->loss : pass->loss * share;
  } else {
    // A process without items adds zeros: its own loss is a mean over nothing, 0 / 0.
    for (const DataParallel* const model : models) {
      const at::Tensor one =
          model->zero_loss(ddp_.find_unused_parameters && some ? &*some : nullptr);
      if (one.defined()) own = own.defined() ? own + one.to(own.device()) : one;
    }
  }
  // The last model is usually nearest to the loss and gets its gradients first.
  const auto order = models.size() > 1 ? std::make_shared<PassOrder>() : nullptr;
  for (auto model = models.rbegin(); model != models.rend(); ++model) {
    const bool restricted = adds && some.has_value();
    (*model)->prepare_backward(restricted ? (*model)->zero_loss(&*some) : own, own, factor, order);
  }
  // Runs before the reducers wait for the buckets that they have sent.
  if (order && own.defined()) at_end_of_pass(own, [order] { order->release(); });
  if (own.defined()) run(adds ? *pass : Pass{}, own);
  for (DataParallel* const model : models) model->finish_backward(own);
  scale_gradients_(outside_buckets, share);
}

}  // namespace hasten
