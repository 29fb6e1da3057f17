#include "hasten/prepare/step.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"
#include "prepare/data_parallel.h"
#include "process/living.h"

namespace hasten {
namespace {

// Zero, with a gradient of zeros for every parameter.
at::Tensor zero_of(const std::vector<DataParallel*>& models) {
  at::Tensor zero;
  for (const DataParallel* const model : models) {
    for (const at::Tensor& parameter : model->parameters()) {
      const at::Tensor one = parameter.flatten().narrow(0, 0, 1).sum() * 0;
      zero = zero.defined() ? zero + one.to(zero.device()) : one;
    }
  }
  return zero;
}

}  // namespace

Step::Step(std::int64_t accumulation_steps, Precision precision, ProcessState process, Group group,
           DistributedDataParallelKwargs ddp)
    : accumulation_steps(accumulation_steps),
      precision(precision),
      process(std::move(process)),
      group(std::move(group)),
      ddp_(ddp),
      living_(std::make_shared<LivingMark>(Living::accelerator)) {
  if (accumulation_steps < 1) {
    throw UsageError("prepare.accumulation-steps", {.what = "gradient_accumulation_steps",
                                                    .got = str(accumulation_steps),
                                                    .expected = "1 or more"});
  }
}

Step::~Step() = default;

void Step::parallelize(const std::shared_ptr<torch::nn::Module>& module) {
  if (group.size() == 1) return;
  for (const auto& model : parallel_) {
    if (model->module() == module.get()) return;  // prepared before
  }
  parallel_.push_back(std::make_unique<DataParallel>(module, group, ddp_));
}

void Step::before_forward(const torch::nn::Module* module) {
  for (const auto& model : parallel_) {
    if (model->module() == module) model->before_forward();
  }
}

bool Step::set_synchronizes(const torch::nn::Module* module, bool synchronizes) {
  for (const auto& model : parallel_) {
    if (model->module() == module) return std::exchange(model->synchronizes, synchronizes);
  }
  return true;
}

void Step::enter(const std::vector<void*>& models, const std::vector<at::Tensor>& parameters) {
  if (inside_)
    throw UsageError("prepare.nested-accumulate",
                     {.what = "accumulate() inside accumulate()",
                      .hint = "hand all models of a step to one call"});
  window_ = &windows_[models];
  window_models_ = models;
  if (window_->closed) *window_ = Window{};
  window_->parameters = parameters;
  inside_ = true;
  backwards_ = 0;
  const bool last = !loaders.empty() && loaders.back()->at_last_batch;
  sync_ = last || window_->batches + 1 >= accumulation_steps;
}

void Step::leave() { inside_ = false; }

void Step::backward(const at::Tensor& loss, double items) {
  if (loss.numel() != 1) {
    throw UsageError("prepare.loss-not-scalar",
                     {.what = "backward(loss)",
                      .got = str("a tensor of ", loss.numel(), " elements"),
                      .expected = "one number",
                      .hint = "take the mean of the losses"});
  }
  if (precision != Precision::no && forwards == 0) {
    throw UsageError(
        "prepare.unprepared-forward",
        {.what = "backward() under mixed precision before any call of a prepared model",
         .hint = "call the model that prepare() gave, model(x): model->forward(x) and the raw "
                 "module run without autocast"});
  }
  const PhaseScope phase(observers, StepPhase::backward);
  group.size() == 1 ? backward_alone(loss, items) : backward_together(loss, items);
}

void Step::backward_alone(const at::Tensor& loss, double items) {
  if (window_ == nullptr || !inside_) {  // no accumulation: the weight of the only batch cancels
    loss.backward();
    return;
  }
  const double weight = items < 0 ? 1.0 : items;
  const bool first = backwards_++ == 0;  // several losses of one micro-batch share its weight
  if (first) {
    ++window_->batches;
    window_->weight += weight;
  }
  if (sync_ && window_->batches == 1)
    return loss.backward();  // the only micro-batch: its weight cancels
  // A micro-batch without an item has no loss to speak of (its mean is 0 / 0) and adds nothing.
  if (weight > 0) {
    const double share =
        sync_ && !first ? weight / window_->weight : weight;  // the window was divided already
    (share == 1.0 ? loss : loss * share).backward();
  }
  if (sync_ && first && window_->weight > 0)
    scale_gradients_(window_->parameters, 1.0 / window_->weight);
}

// As backward_alone, over all processes: gradients are sums of loss gradients times their weights,
// and are divided once, by the sum of all weights, on their way through the buckets.
void Step::backward_together(const at::Tensor& loss, double items) {
  const double weight = items < 0 ? 1.0 : items;
  // Without items all processes have the same number of micro-batches, which needs no asking.
  const auto over_all = [&](double own) {
    if (items < 0) return own * static_cast<double>(group.size());
    return group.reduce(at::scalar_tensor(own, at::kDouble)).item<double>();
  };
  if (window_ == nullptr || !inside_) {
    const double all = over_all(weight);
    return reduce(loss, weight, 1.0, all > 0 ? weight / all : 0);
  }
  const bool first = backwards_++ == 0;
  if (first) {
    ++window_->batches;
    window_->weight += weight;
  }
  if (!sync_) {
    if (weight > 0) (weight == 1.0 ? loss : loss * weight).backward();
    return;
  }
  if (first) window_->weight_of_all = over_all(window_->weight);
  const double all = window_->weight_of_all;
  if (all <= 0) return reduce(loss, 0, 1.0, 0);
  if (first && window_->batches == 1) return reduce(loss, weight, 1.0, weight / all);
  if (first) return reduce(loss, weight, weight, 1.0 / all);
  // The window was divided already, and is the same everywhere: what is added becomes a mean.
  const auto size = static_cast<double>(group.size());
  reduce(loss, weight, size * weight / all, 1.0 / size);
}

// Of a window only its own models; of several those that the loss reaches.
std::vector<DataParallel*> Step::models_of(const at::Tensor& loss) const {
  const auto in_window = [&](const DataParallel& model) {
    const void* const module = model.module();
    return window_ == nullptr || !inside_ ||
           std::find(window_models_.begin(), window_models_.end(), module) != window_models_.end();
  };
  std::vector<DataParallel*> models;
  for (const auto& model : parallel_) {
    if (model->synchronizes && in_window(*model)) models.push_back(model.get());
  }
  if (parallel_.size() > 1) {
    const LeafSet leaves = reached_by(loss);
    std::erase_if(models, [&](const DataParallel* model) { return !model->has_one_of(leaves); });
  }
  return models;
}

// A process without an item takes part with zeros: its own loss is a mean over nothing, 0 / 0.
void Step::reduce(const at::Tensor& loss, double weight, double share, double factor) {
  const std::vector<DataParallel*> models = models_of(loss);
  const at::Tensor own = weight <= 0 ? zero_of(models) : share == 1.0 ? loss : loss * share;
  for (DataParallel* const model : models) model->expect(own, factor);
  if (own.defined()) own.backward();
  for (DataParallel* const model : models) model->check(own);
}

bool Step::window_is_open(const std::vector<at::Tensor>& parameters) const {
  for (const auto& [models, window] : windows_) {
    if (window.batches == 0 || window.closed) continue;
    for (const at::Tensor& parameter : window.parameters) {
      for (const at::Tensor& other : parameters) {
        if (parameter.is_same(other)) return true;
      }
    }
  }
  return false;
}

void Step::stepped() {
  if (window_ != nullptr) window_->closed = true;
}

void Step::forget() {
  parallel_.clear();
  windows_.clear();
  window_ = nullptr;
  inside_ = false;
  sync_ = true;
}

}  // namespace hasten
