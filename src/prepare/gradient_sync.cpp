#include "prepare/gradient_sync.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"

namespace hasten {
namespace {

// True if each loss of the window is multiplied by its weight. In a window of one micro-batch the
// exchange applies the weight instead, which saves a rounding.
bool scales_losses(const AccumulationWindow& window) { return window.capacity() > 1; }

}  // namespace

GradientSync::GradientSync(Group group, DistributedDataParallelKwargs options)
    : group_(std::move(group)),
      options_(options),
      runner_(models_, options.find_unused_parameters),
      announcer_(group_, models_) {}

void GradientSync::add_model(const std::shared_ptr<torch::nn::Module>& module) {
  if (group_.size() == 1) return;
  for (const auto& model : models_) {
    if (model->module() == module.get()) return;  // the module was prepared before
  }
  models_.push_back(std::make_unique<DataParallelModel>(module, group_, options_));
}

void GradientSync::remove_model(const torch::nn::Module* module) {
  std::erase_if(models_, [&](const auto& each) { return each->module() == module; });
}

void GradientSync::drop_destroyed_models() {
  std::erase_if(models_, [](const auto& each) { return each->module() == nullptr; });
}

void GradientSync::sync_buffers(const torch::nn::Module* module) {
  for (const auto& model : models_) {
    if (model->module() != module || !model->sends_buffers()) continue;
    model->send_buffers(announcer_.announce_buffers(model.get()));
  }
}

Synchronization GradientSync::set_synchronization(const torch::nn::Module* module,
                                                  Synchronization synchronization) {
  for (const auto& model : models_) {
    if (model->module() == module) return std::exchange(model->synchronization, synchronization);
  }
  return Synchronization::at_window_end;
}

void GradientSync::average(const torch::nn::Module* module) {
  announcer_.require_all_have_data("the averaging of LocalSGD");
  for (const auto& model : models_) {
    if (model->module() == module) model->average();
  }
}

bool GradientSync::is_local(const BackwardPass& pass, const AccumulationWindow* window) const {
  const auto trains_locally = [](const auto& model) {
    return model->synchronization == Synchronization::never;
  };
  if (group_.size() == 1) return true;
  if (std::none_of(models_.begin(), models_.end(), trains_locally)) return false;
  const std::vector<DataParallelModel*> models = models_of(pass, window);
  const auto count = std::count_if(models.begin(), models.end(), trains_locally);
  if (count == 0 || count == std::ssize(models)) return count != 0;
  throw UsageError(
      "prepare.local-sgd-mixed",
      {.what = "a loss that depends on a model in LocalSGD and on one that is not",
       .expected = "models that are all in LocalSGD, or none of them",
       .hint = "make a LocalSGD for each of them, or pass accumulate() only the models that the "
               "loss is to train"});
}

void GradientSync::exchange(const BackwardPass& pass, AccumulationWindow* window) {
  if (window == nullptr) return exchange_pass(pass);
  window->count_pass(pass.weight);
  if (window->is_due()) return exchange_at_end(pass, *window);
  // An early exchange gives every process an equal share of the sum. The division by the weights
  // follows at the end of the window.
  const bool early = std::any_of(models_.begin(), models_.end(), [](const auto& model) {
    return model->synchronization == Synchronization::now;
  });
  const auto models = early ? models_to_exchange(pass, window) : std::vector<DataParallelModel*>{};
  if (!models.empty()) {
    if (is_in_join()) announcer_.announce_backward(models, JoinPass::early, /*sums_weights=*/false);
    const auto size = static_cast<double>(group_.size());
    return runner_.reduce(models, &pass, pass.weight, pass.weight, 1.0 / size);
  }
  add_local(pass, pass.weight);
}

// Adds the gradients of a pass in this process only. A pass without items adds nothing.
void GradientSync::add_local(const BackwardPass& pass, double share) const {
  if (pass.weight > 0) runner_.add_gradients(pass, share);
}

// Exchanges a pass that belongs to no window. Sums the weights over the processes only if some
// processes may be out of data or if weights may differ.
void GradientSync::exchange_pass(const BackwardPass& pass) {
  const std::vector<DataParallelModel*> models = models_to_exchange(pass, nullptr);
  if (models.empty()) return add_local(pass, 1.0);
  if (is_in_join())
    announcer_.announce_backward(models, JoinPass::without_window, /*sums_weights=*/true);
  const double all = total_weight(pass.weight, is_in_join() || pass.by_items);
  weight_share_ = all > 0 ? pass.weight / all : 0;
  runner_.reduce(models, &pass, pass.weight, 1.0, *weight_share_);
}

// Exchanges a pass of a window's last micro-batch. A pass that exchanges no model, because of
// no_sync or because the loss reaches none, stays in this process, which calls no collective then:
// other processes may make fewer or more of these passes.
void GradientSync::exchange_at_end(const BackwardPass& pass, AccumulationWindow& window) {
  const std::vector<DataParallelModel*> models = models_to_exchange(pass, &window);
  if (models.empty()) return add_local(pass, scales_losses(window) ? pass.weight : 1.0);
  const bool closes = !window.is_closed();
  if (closes && has_pre_exchange_function()) return exchange_after_pass(pass, window, models);
  if (is_in_join() || announces_models(window))
    announcer_.announce_backward(models, JoinPass::closing, /*sums_weights=*/closes);
  if (closes) {
    // The micro-batches that had a backward pass may differ between processes.
    const bool differs = is_in_join() || pass.by_items || window.capacity() > 1;
    window.close(total_weight(window.weight(), differs));
  }
  const double all = window.total_weight();
  weight_share_ = all > 0 ? window.weight() / all : 0;
  exchange_window(window, models, &pass);
}

bool GradientSync::has_pre_exchange_function() const {
  return std::any_of(pre_exchange_functions_.begin(), pre_exchange_functions_.end(),
                     [](const auto& function) { return static_cast<bool>(*function); });
}

void GradientSync::throw_join_with_hook() const {
  throw UsageError("prepare.join-call",
                   {.what = "join_uneven_inputs with register_exchange_pre_hook",
                    .got = "a function that every process calls before an exchange",
                    .expected = "one of them: a process without data computes no gradients",
                    .hint = "call remove() of the hook before the scope"});
}

ExchangeHook GradientSync::add_pre_exchange_function(std::function<void()> function) {
  if (is_in_join()) throw_join_with_hook();
  std::erase_if(pre_exchange_functions_, [](const auto& each) { return !*each; });
  pre_exchange_functions_.push_back(std::make_shared<std::function<void()>>(std::move(function)));
  return ExchangeHook(pre_exchange_functions_.back());
}

// Exchanges the gradients of a window after they have been computed.
void GradientSync::exchange_after_pass(const BackwardPass& pass, AccumulationWindow& window,
                                       const std::vector<DataParallelModel*>& models) {
  add_local(pass, pass.weight);
  // A function may register others, or remove itself while it runs.
  const std::vector<std::shared_ptr<std::function<void()>>> registered = pre_exchange_functions_;
  for (const auto& each : registered) {
    const std::function<void()> function = *each;
    if (function) function();
  }
  if (announces_models(window))
    announcer_.announce_backward(models, JoinPass::closing, /*sums_weights=*/true);
  close_with_weights(window);
  const double all = window.total_weight();
  weight_share_ = all > 0 ? window.weight() / all : 0;
  exchange_window(window, models, nullptr);
}

double GradientSync::total_weight(double own, bool differs) {
  if (!differs) return own * static_cast<double>(group_.size());
  return group_.reduce(at::scalar_tensor(own, at::kDouble)).item<double>();
}

void GradientSync::exchange_window(AccumulationWindow& window,
                                   const std::vector<DataParallelModel*>& models,
                                   const BackwardPass* pass) {
  const double all = window.total_weight(), weight = pass ? pass->weight : 0;
  bool again = false;
  for (const DataParallelModel* const model : models) {
    if (!window.has_exchanged(model->module())) {
      window.mark_exchanged(model->module());
      continue;
    }
    again = true;
    if (all > 0) scale_gradients_(model->parameters(), all / static_cast<double>(group_.size()));
  }
  if (all <= 0) return runner_.reduce(models, pass, 0, 1.0, 0);
  if (pass && !again && !scales_losses(window))
    return runner_.reduce(models, pass, weight, 1.0, weight / all);
  runner_.reduce(models, pass, weight, weight, 1.0 / all);
}

// True if the processes must announce to each other which models they exchange at the end of the
// window. A loss may reach only some of the models, and a process may have skipped the micro-batch.
bool GradientSync::announces_models(const AccumulationWindow& window) const {
  return window.capacity() > 1 && models_at_end(window).size() > 1;
}

void GradientSync::close(AccumulationWindow& window, const std::vector<at::Tensor>& parameters) {
  if (!window.is_closed()) divide_local(window, parameters);
  std::vector<DataParallelModel*> missing = models_at_end(window);
  if (missing.empty()) return window.close();
  std::erase_if(missing, [&](const DataParallelModel* model) {
    return window.has_exchanged(model->module()) || !model->has_one_of(parameters);
  });
  if (missing.empty()) return;
  if (window.capacity() == 1) {
    if (window.is_closed()) return;  // its losses did not reach them
    if (window.batches() > 0) return window.close();
    throw UsageError(
        "prepare.open-window",
        {.what = str("an optimizer step on rank ", group_.rank(),
                     " in a micro-batch without accelerator.backward()"),
         .expected = "a backward pass in every process, because the others wait for its gradients",
         .hint = "call accelerator.backward(loss * 0); or pass the number of items in every "
                 "process, which is 0 here; or skip the step in every process"});
  }
  if (is_in_join() || announces_models(window))
    return exchange_remaining(window, std::move(missing));
  close_with_weights(window);
  exchange_window(window, missing, nullptr);
}

// Takes part in the passes of the other processes until these models have been exchanged. When no
// process has a pass left, all processes exchange the remaining models at once.
void GradientSync::exchange_remaining(AccumulationWindow& window,
                                      std::vector<DataParallelModel*> missing) {
  while (!missing.empty()) {
    std::vector<DataParallelModel*> with_gradients = missing;
    std::erase_if(with_gradients,
                  [](const DataParallelModel* model) { return !model->has_gradients(); });
    const bool sums_weights = !window.is_closed();
    const MessageExchange& messages =
        announcer_.announce_backward(with_gradients, JoinPass::catch_up, sums_weights);
    const bool is_last = messages.leader_message().is_catch_up();
    const auto models = announcer_.models_from_bits(messages.announced_models());
    if (sums_weights) close_with_weights(window);
    exchange_window(window, models, nullptr);
    if (is_last) {  // no process has gradients of the remaining models
      for (const DataParallelModel* const model : missing) window.mark_exchanged(model->module());
      return;
    }
    std::erase_if(missing, [&](const DataParallelModel* model) {
      return window.has_exchanged(model->module());
    });
  }
}

// Divides gradients that are not exchanged with other processes.
void GradientSync::divide_local(AccumulationWindow& window,
                                const std::vector<at::Tensor>& parameters) const {
  const double factor = window.weight() > 0 ? 1.0 / window.weight() : 1.0;
  if (models_.empty()) return scale_gradients_(window.parameters(), factor);
  for (const auto& model : models_) {
    if (model->synchronization != Synchronization::never) continue;
    const torch::nn::Module* const module = model->module();
    if (!window.has_model(module) || window.has_exchanged(module)) continue;
    if (!model->has_one_of(parameters)) continue;
    scale_gradients_(model->parameters(), factor);
    window.mark_exchanged(module);
  }
}

std::vector<DataParallelModel*> GradientSync::models_at_end(
    const AccumulationWindow& window) const {
  std::vector<DataParallelModel*> models;
  for (const auto& model : models_) {
    const bool is_exchanged = model->synchronization == Synchronization::at_window_end ||
                              model->synchronization == Synchronization::now;
    if (is_exchanged && window.has_model(model->module())) models.push_back(model.get());
  }
  return models;
}

std::vector<DataParallelModel*> GradientSync::models_of(const BackwardPass& pass,
                                                        const AccumulationWindow* window) const {
  std::vector<DataParallelModel*> models;
  for (const auto& model : models_) {
    if (window == nullptr || window->has_model(model->module())) models.push_back(model.get());
  }
  if (models_.size() > 1 || pass.inputs_of_user) {
    const Leaves leaves = pass.leaves();
    std::erase_if(models,
                  [&](const DataParallelModel* model) { return !model->has_one_of(leaves); });
  }
  return models;
}

std::vector<DataParallelModel*> GradientSync::models_to_exchange(
    const BackwardPass& pass, const AccumulationWindow* window) const {
  const bool closes = window == nullptr || window->is_due();
  std::vector<DataParallelModel*> models = models_of(pass, window);
  std::erase_if(models, [&](const DataParallelModel* model) {
    return model->synchronization != Synchronization::now &&
           !(closes && model->synchronization == Synchronization::at_window_end);
  });
  return models;
}

void GradientSync::check_not_abandoned(const AccumulationWindow& window) const {
  if (!window.is_due() || !window.holds_gradients()) return;
  const bool is_shared = std::any_of(models_.begin(), models_.end(), [&](const auto& model) {
    return window.has_model(model->module()) && model->synchronization != Synchronization::never;
  });
  if (!is_shared) return;
  throw UsageError(
      "prepare.open-window",
      {.what = str("rank ", group_.rank(), " left the last micro-batch of its accumulation window"),
       .got = "neither accelerator.backward() nor optimizer.step() in it",
       .expected = "one of them, because other processes exchange the window's gradients there",
       .hint = "call optimizer.step() even if the micro-batch is skipped"});
}

void GradientSync::throw_if_unexchanged(const std::vector<at::Tensor>& parameters) const {
  for (const auto& model : models_) model->throw_if_unexchanged(parameters);
}

void GradientSync::mark_cleared(const std::vector<at::Tensor>& parameters) {
  for (const auto& model : models_) model->mark_cleared(parameters);
}

at::Tensor GradientSync::mean_loss(const at::Tensor& loss) {
  if (!weight_share_ || !loss.defined()) return loss;
  announcer_.require_all_have_data("optimizer.step(closure)");
  const torch::NoGradGuard no_grad;
  // A process without items has a loss of 0 / 0.
  const at::Tensor own = *weight_share_ > 0 ? loss.detach().to(at::kDouble) * *weight_share_
                                            : at::zeros({}, at::kDouble);
  return group_.reduce(own.reshape({})).to(loss.options());
}

void GradientSync::begin_join(const std::vector<torch::nn::Module*>& models) {
  if (has_pre_exchange_function()) throw_join_with_hook();
  announcer_.begin_join(models);
}

void GradientSync::close_with_weights(AccumulationWindow& window) {
  window.close(total_weight(window.weight(), /*differs=*/true));
}

void GradientSync::exchange_zeros(const std::vector<DataParallelModel*>& models) {
  runner_.reduce(models, nullptr, 0, 1.0, 1.0 / static_cast<double>(group_.size()));
}

}  // namespace hasten
