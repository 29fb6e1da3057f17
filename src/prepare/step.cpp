#include "hasten/prepare/step.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/to_device.h"
#include "prepare/data_parallel.h"
#include "prepare/join.h"
#include "prepare/pass_order.h"
#include "process/living.h"

namespace hasten {
namespace {

at::Tensor zero_of(const std::vector<DataParallel*>& models, const at::Tensor& loss) {
  at::Tensor zero;
  for (const DataParallel* const model : models) {
    const at::Tensor one = model->zero(loss);
    if (one.defined()) zero = zero.defined() ? zero + one.to(zero.device()) : one;
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

void Step::add_model(const std::shared_ptr<torch::nn::Module>& module) {
  const auto* const known = dynamic_cast<const PreTrainedModel*>(module.get());
  if (known && dataloader.static_shapes.max_length == 0)
    dataloader.static_shapes.max_length = known->max_length();
  if (group.size() == 1) return;
  for (const auto& model : parallel_) {
    if (model->module() == module.get()) return;  // prepared before
  }
  parallel_.push_back(std::make_unique<DataParallel>(module, group, ddp_));
}

TensorDict Step::arriving(TensorDict batch, std::int64_t rows) const {
  const StaticShapes& shapes = dataloader.static_shapes;
  if (dataloader.pad_to_static_shapes.value_or(false))
    batch = with_static_shape(batch, rows, shapes);
  for (auto& [name, tensor] : batch) {
    const auto type = type_there(tensor);
    // What a loss is measured against is not rounded.
    if (type) tensor = tensor.to(name == shapes.labels ? at::kFloat : *type);
  }
  return to_device(std::move(batch), process.device);
}

std::optional<at::ScalarType> Step::type_there(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.scalar_type() != at::kDouble) return std::nullopt;
  return double_there;
}

void Step::before_forward(const torch::nn::Module* module) {
  for (const auto& model : parallel_) {
    if (model->module() != module || !model->sends_buffers()) continue;
    std::int64_t from = 0;
    if (join_) {
      join_->say({.call = JoinCall::buffers, .models = bits_of({model.get()})});
      if (!join_->all_have_data()) from = join_->leader();
    }
    model->send_buffers(from);
  }
}

Synchronization Step::set_synchronization(const torch::nn::Module* module, Synchronization how) {
  for (const auto& model : parallel_) {
    if (model->module() == module) return std::exchange(model->synchronization, how);
  }
  return Synchronization::at_window_end;
}

void Step::average(const torch::nn::Module* module) {
  require_all("the averaging of LocalSGD");
  for (const auto& model : parallel_) {
    if (model->module() == module) model->average();
  }
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
  is_alone(loss) ? backward_alone(loss, items) : backward_together(loss, items);
}

bool Step::is_alone(const at::Tensor& loss) const {
  const auto goes_its_way = [](const auto& model) {
    return model->synchronization == Synchronization::never;
  };
  if (group.size() == 1) return true;
  if (std::none_of(parallel_.begin(), parallel_.end(), goes_its_way)) return false;
  const std::vector<DataParallel*> models = models_of(loss);
  const auto count = std::count_if(models.begin(), models.end(), goes_its_way);
  if (count == 0 || count == std::ssize(models)) return count != 0;
  throw UsageError("prepare.local-sgd-mixed",
                   {.what = "a loss that passes through a model of a LocalSGD and another one",
                    .expected = "models whose gradients are all exchanged, or none of them",
                    .hint = "make a LocalSGD for each of them, or hand accumulate() those that "
                            "the loss is for"});
}

void Step::backward_alone(const at::Tensor& loss, double items) {
  const double weight = items < 0 ? 1.0 : items;
  if (window_ == nullptr || !inside_) {  // no accumulation: the weight of the only batch cancels
    if (weight > 0) loss.backward();
    return;
  }
  const bool first = backwards_++ == 0;  // several losses of one micro-batch share its weight
  if (first) {
    ++window_->batches;
    window_->weight += weight;
  }
  if (sync_ && window_->batches == 1 && weight > 0)
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
  const auto over_all = [&](double own, const std::vector<DataParallel*>& models, JoinPass pass) {
    return weight_of_all(own, items >= 0, models, pass);
  };
  if (window_ == nullptr || !inside_) {
    const std::vector<DataParallel*> models = exchanging(loss);
    const double all = over_all(weight, models, JoinPass::alone);
    return reduce(models, loss, weight, 1.0, all > 0 ? weight / all : 0);
  }
  const bool first = backwards_++ == 0;
  if (first) {
    ++window_->batches;
    window_->weight += weight;
  }
  if (!sync_) {
    // Exchanged early, all have the same share of the sum; the window's end divides it.
    const bool early = std::any_of(parallel_.begin(), parallel_.end(), [](const auto& model) {
      return model->synchronization == Synchronization::now;
    });
    const auto models = early ? exchanging(loss) : std::vector<DataParallel*>{};
    if (!models.empty()) {
      if (join_) say_backward(models, JoinPass::early);
      return reduce(models, loss, weight, weight, 1.0 / static_cast<double>(group.size()));
    }
    if (weight > 0) (weight == 1.0 ? loss : loss * weight).backward();
    return;
  }
  const std::vector<DataParallel*> models = exchanging(loss);
  if (first) {
    window_->weight_of_all = over_all(window_->weight, models, JoinPass::closing);
  } else if (join_ && !models.empty()) {
    say_backward(models, JoinPass::further);
  }
  const double all = window_->weight_of_all;
  if (all <= 0) return reduce(models, loss, 0, 1.0, 0);
  if (first && window_->batches == 1) return reduce(models, loss, weight, 1.0, weight / all);
  if (first) return reduce(models, loss, weight, weight, 1.0 / all);
  // The window was divided already, and is the same everywhere: what is added becomes a mean.
  const auto size = static_cast<double>(group.size());
  reduce(models, loss, weight, size * weight / all, 1.0 / size);
}

// Where processes may run out of data they have to be asked, else only about items: without, all
// have the same number of micro-batches.
double Step::weight_of_all(double own, bool by_items, const std::vector<DataParallel*>& models,
                           JoinPass pass) {
  // Those that are through would not know of a collective that no exchange needs.
  if (join_ && models.empty()) return own * static_cast<double>(group.size());
  if (join_) say_backward(models, pass);
  if (!join_ && !by_items) return own * static_cast<double>(group.size());
  return group.reduce(at::scalar_tensor(own, at::kDouble)).item<double>();
}

std::vector<DataParallel*> Step::models_of(const at::Tensor& loss) const {
  std::vector<DataParallel*> models;
  for (const auto& model : parallel_) {
    const void* const module = model->module();
    const bool in_window =
        window_ == nullptr || !inside_ ||
        std::find(window_models_.begin(), window_models_.end(), module) != window_models_.end();
    if (in_window) models.push_back(model.get());
  }
  if (parallel_.size() > 1) {
    const LeafSet leaves = reached_by(loss);
    std::erase_if(models, [&](const DataParallel* model) { return !model->has_one_of(leaves); });
  }
  return models;
}

std::vector<DataParallel*> Step::exchanging(const at::Tensor& loss) const {
  const bool closes = window_ == nullptr || !inside_ || sync_;
  std::vector<DataParallel*> models = models_of(loss);
  std::erase_if(models, [&](const DataParallel* model) {
    return model->synchronization != Synchronization::now &&
           !(closes && model->synchronization == Synchronization::at_window_end);
  });
  return models;
}

// A process without an item takes part with zeros: its own loss is a mean over nothing, 0 / 0.
void Step::reduce(const std::vector<DataParallel*>& models, const at::Tensor& loss, double weight,
                  double share, double factor) {
  // Where no gradient is here yet, the loss can take the factor, and buckets need not be gone
  // through for it.
  const bool fresh =
      !models.empty() && std::none_of(models.begin(), models.end(),
                                      [](const auto* model) { return model->has_gradients(); });
  if (fresh) share *= std::exchange(factor, 1.0);
  const at::Tensor own = weight <= 0 ? zero_of(models, loss) : share == 1.0 ? loss : loss * share;
  // The last one is mostly nearest to the loss, and has its gradients first.
  const auto order = models.size() > 1 ? std::make_shared<PassOrder>() : nullptr;
  for (auto model = models.rbegin(); model != models.rend(); ++model)
    (*model)->expect(own, factor, order);
  // Before the reducers wait for what they have sent.
  if (order && own.defined()) at_end_of_pass(own, [order] { order->release(); });
  if (own.defined()) own.backward();
  for (DataParallel* const model : models) model->finish(own);
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
