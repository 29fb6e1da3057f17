#include "hasten/prepare/step.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/to_device.h"
#include "optim/distinct.h"
#include "prepare/data_parallel.h"
#include "prepare/join.h"
#include "prepare/pass.h"
#include "prepare/window.h"
#include "process/fork/fork_safety.h"

namespace hasten {
namespace {

// Marks backward passes during its lifetime as Accelerator::backward's.
class AcceleratorBackwardScope {
 public:
  explicit AcceleratorBackwardScope(const std::vector<std::unique_ptr<DataParallel>>& models)
      : models_(models) {
    for (const auto& model : models_) model->in_accelerator_backward = true;
  }
  AcceleratorBackwardScope(const AcceleratorBackwardScope&) = delete;
  AcceleratorBackwardScope& operator=(const AcceleratorBackwardScope&) = delete;
  ~AcceleratorBackwardScope() {
    for (const auto& model : models_) model->in_accelerator_backward = false;
  }

 private:
  const std::vector<std::unique_ptr<DataParallel>>& models_;
};

}  // namespace

Step::Step(std::int64_t accumulation_steps, Precision precision, ProcessState process, Group group,
           DistributedDataParallelKwargs ddp)
    : accumulation_steps(accumulation_steps),
      precision(precision),
      process(std::move(process)),
      group(std::move(group)),
      ddp_(ddp),
      fork_hazard_(std::make_shared<ForkHazardMark>(ForkHazard::accelerator)),
      logger_("hasten", LogLevel::passive, this->process, this->group) {
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
  drop_destroyed();
  for (auto& model : models_) {
    if (model.lock() != module) continue;
    // The module was prepared before. Its owner may differ: each handle of a module on
    // the stack has one.
    model = module;
    for (const auto& each : parallel_) {
      if (each->module() == module.get()) each->set_owner(module);
    }
    return;
  }
  models_.push_back(module);
  if (group.size() > 1) parallel_.push_back(std::make_unique<DataParallel>(module, group, ddp_));
}

TensorDict Step::place_batch(TensorDict batch, std::int64_t rows) const {
  const StaticShapes& shapes = dataloader.static_shapes;
  if (dataloader.pad_to_static_shapes.value_or(false))
    batch = with_static_shape(batch, rows, shapes);
  for (auto& [name, tensor] : batch) {
    const auto type = device_type_of(tensor);
    // Labels become float even if other doubles become bfloat16: rounding them
    // would change the loss.
    if (type) tensor = tensor.to(name == shapes.labels ? at::kFloat : *type);
  }
  return to_device(std::move(batch), process.device);
}

std::optional<at::ScalarType> Step::device_type_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.scalar_type() != at::kDouble) return std::nullopt;
  return double_type_on_device;
}

void Step::sync_buffers(const torch::nn::Module* module) {
  for (const auto& model : parallel_) {
    if (model->module() != module || !model->sends_buffers()) continue;
    std::int64_t from = 0;
    if (join_) {
      join_->exchange({.call = JoinCall::buffers, .models = model_bits({model.get()})});
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

void Step::drop_destroyed() {
  std::erase_if(models_, [](const auto& each) { return each.expired(); });
  std::erase_if(parallel_, [](const auto& each) { return each->module() == nullptr; });
  std::erase_if(windows_, [](const auto& each) { return each->has_destroyed_model(); });
  if (window_ && !inside_ && window_->has_destroyed_model()) window_.reset();
}

void Step::begin_micro_batch(const Models& models) {
  if (inside_)
    throw UsageError("prepare.nested-accumulate",
                     {.what = "accumulate() inside accumulate()",
                      .hint = "pass all models of a step to one call"});
  drop_destroyed();
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const auto& each) { return each->is_of(models); });
  if (found == windows_.end()) {
    replace_windows_that_share(models);
    window_ = windows_.emplace_back(std::make_shared<Window>(models));
  } else {
    window_ = *found;
    check_abandoned_window(*window_);
  }
  inside_ = true;
  window_->begin_micro_batch(accumulation_steps, !loaders.empty() && loaders.back()->at_last_batch);
}

// Drops windows that share parameters with these models, as both would divide the gradients. Throws
// if one holds gradients.
void Step::replace_windows_that_share(const Models& models) {
  if (windows_.empty()) return;
  const std::vector<at::Tensor> parameters = Window(models).parameters();
  for (const auto& window : windows_) {
    if (!window->holds_gradients() || !window->has_one_of(parameters)) continue;
    throw UsageError(
        "prepare.shared-window",
        {.what = "accumulate() of models that share parameters with another accumulation window",
         .got = str("an open window, in micro-batch ", window->begun(), " of ", accumulation_steps),
         .expected = "the same models in every accumulate() of a window",
         .hint = "in each micro-batch, pass accumulate() all models that the losses of the window "
                 "train; or drop the window with accelerator.free_memory() and zero_grad()"});
  }
  std::erase_if(windows_, [&](const auto& window) { return window->has_one_of(parameters); });
}

// Throws if the window's last micro-batch was left with neither backward() nor step(): other
// processes may have closed the window in it.
void Step::check_abandoned_window(const Window& window) const {
  if (!window.is_due() || !window.holds_gradients()) return;
  const bool is_shared = std::any_of(parallel_.begin(), parallel_.end(), [&](const auto& model) {
    return window.has_model(model->module()) && model->synchronization != Synchronization::never;
  });
  if (!is_shared) return;
  throw UsageError(
      "prepare.open-window",
      {.what = str("rank ", group.rank(), " left the last micro-batch of its accumulation window"),
       .got = "neither accelerator.backward() nor optimizer.step() in it",
       .expected = "one of them, because other processes exchange the window's gradients there",
       .hint = "call optimizer.step() even if the micro-batch is skipped"});
}

// Drops windows that wait without gradients and have parameters that this pass reaches. A loop
// left before a window's first backward pass leaves them; its models go on outside of accumulate()
// and have to step.
void Step::drop_abandoned_windows(const Pass& pass) {
  const auto is_abandoned = [](const auto& window) {
    return window->is_incomplete() && !window->holds_gradients();
  };
  if (std::none_of(windows_.begin(), windows_.end(), is_abandoned)) return;
  const std::vector<at::Tensor> leaves = tensors_of(pass.leaves());
  std::erase_if(windows_, [&](const auto& window) {
    return is_abandoned(window) && window->has_one_of(leaves);
  });
}

bool Step::sync_gradients() const { return !window_ || window_->is_due(); }

void Step::backward(const at::Tensor& loss, double items, const BackwardOptions& options) {
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
         .hint = "call the model that prepare() returned, model(x): model->forward(x) and the "
                 "original module run without autocast"});
  }
  warn_about_16_bits(loss);
  drop_destroyed();
  if (!inside_) window_.reset();
  const Pass pass{.loss = loss,
                  .weight = items < 0 ? 1.0 : items,
                  .by_items = items >= 0,
                  .inputs = inputs_of(loss, options),
                  .inputs_of_user = !options.inputs.empty(),
                  .retain_graph = options.retain_graph,
                  .create_graph = options.create_graph};
  check_options(pass);
  if (!inside_) drop_abandoned_windows(pass);
  weight_share_.reset();
  const PhaseScope phase(observers, StepPhase::backward);
  const auto before = window_ ? window_->counts() : Window::Counts{};
  try {
    is_local(pass) ? backward_local(pass) : backward_distributed(pass);
  } catch (...) {
    if (window_) window_->restore(before);
    throw;
  }
}

void Step::warn_about_16_bits(const at::Tensor& loss) {
  if (!has_16_bits(loss)) return;
  logger_.warning_once(
      str("backward() was given a loss in ", c10::toString(loss.scalar_type()),
          ", which rounds the loss and its gradient to two or three digits. Compute the loss under "
          "accelerator.autocast(), which computes losses in float, or from logits in float: "
          "logits.to(torch::kFloat)"));
}

void Step::check_options(const Pass& pass) const {
  if (!pass.create_graph) return;
  const bool divides = inside_ && accumulation_steps > 1;
  if (!divides && is_local(pass)) return;
  throw UsageError(
      "prepare.create-graph",
      {.what = "backward(loss, {.create_graph = true})",
       .got = divides ? "an accumulation window, which divides the gradients at its end"
                      : "gradients that are exchanged between processes",
       .expected = "gradients that do not change after the backward pass",
       .hint =
           "compute the gradients for a penalty with torch::autograd::grad({loss}, parameters, {}, "
           "true, /*create_graph=*/true), and pass the whole loss to accelerator.backward()"});
}

// Returns the leaves that get gradients; empty: all that the loss reaches. If models train
// in turn (a GAN), a pass of one would otherwise leave gradients in the others, which their
// next step would use.
std::vector<at::Tensor> Step::inputs_of(const at::Tensor& loss, const BackwardOptions& options) {
  if (!options.inputs.empty()) return options.inputs;
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

std::vector<at::Tensor> Step::excluded_parameters() const {
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
  // Parameters that belong to both are trained.
  TensorSet seen;
  for (const auto& model : trained) distinct(model->parameters(), seen);
  std::vector<at::Tensor> all;
  for (const auto& model : others) {
    for (at::Tensor& parameter : distinct(model->parameters(), seen))
      all.push_back(std::move(parameter));
  }
  return all;
}

bool Step::is_local(const Pass& pass) const {
  const auto trains_locally = [](const auto& model) {
    return model->synchronization == Synchronization::never;
  };
  if (group.size() == 1) return true;
  if (std::none_of(parallel_.begin(), parallel_.end(), trains_locally)) return false;
  const std::vector<DataParallel*> models = models_of(pass);
  const auto count = std::count_if(models.begin(), models.end(), trains_locally);
  if (count == 0 || count == std::ssize(models)) return count != 0;
  throw UsageError(
      "prepare.local-sgd-mixed",
      {.what = "a loss that depends on a model in LocalSGD and on one that is not",
       .expected = "models that are all in LocalSGD, or none of them",
       .hint = "make a LocalSGD for each of them, or pass accumulate() only the models that the "
               "loss is to train"});
}

void Step::run(const Pass& pass, const at::Tensor& loss) {
  const AcceleratorBackwardScope scope(parallel_);
  torch::autograd::backward({loss}, {}, pass.retain_graph, pass.create_graph, pass.inputs);
}

void Step::add_gradients(const Pass& pass, double share) {
  if (share == 1.0) return run(pass, pass.loss);
  if (!has_16_bits(pass.loss)) return run(pass, pass.loss * share);
  // The gradient of a 16-bit loss has 16 bits too and would round the share. Instead, the gradients
  // present are divided by it before the pass, and all are multiplied by it afterwards.
  const std::vector<at::Tensor> leaves = tensors_of(pass.leaves());
  scale_gradients_(leaves, 1.0 / share);
  run(pass, pass.loss);
  scale_gradients_(leaves, share);
}

void Step::backward_local(const Pass& pass) {
  const double weight = pass.weight;
  if (!window_) {  // no accumulation: the weight of the only batch cancels
    if (weight > 0) run(pass, pass.loss);
    return;
  }
  const bool was_closed = window_->is_closed();
  const bool first = window_->count_pass(weight);
  const bool closes = window_->is_due() && first;
  // A micro-batch without items has no loss (its mean is 0 / 0) and adds nothing.
  if (weight > 0) {
    if (closes && window_->batches() == 1) {
      run(pass, pass.loss);  // the only micro-batch: its weight cancels
    } else {
      const bool is_divided = was_closed && window_->weight() > 0;
      add_gradients(pass, is_divided ? weight / window_->weight() : weight);
    }
  }
  if (!closes) return;
  if (window_->batches() > 1 && window_->weight() > 0)
    scale_gradients_(window_->parameters(), 1.0 / window_->weight());
  window_->close();
}

bool Step::has_incomplete_window(const std::vector<at::Tensor>& parameters) const {
  bool has_window = false;
  for (const auto& window : windows_) {
    if (!window->has_one_of(parameters)) continue;
    if (window->is_incomplete()) return true;
    has_window = true;
  }
  // Parameters of no window, such as those of a loss function, follow the active
  // accumulate() scope.
  return !has_window && inside_ && window_->is_incomplete();
}

bool Step::has_incomplete_window(const torch::nn::Module* module) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
    return window->has_model(module) && window->is_incomplete();
  });
}

bool Step::close_due_windows(const std::vector<at::Tensor>& parameters) {
  if (has_incomplete_window(parameters)) return false;
  for (const auto& model : parallel_) model->throw_if_unexchanged(parameters);
  for (const auto& window : windows_) {
    if (window->is_due() && window->has_one_of(parameters)) close(*window, parameters);
  }
  return true;
}

void Step::warn_about_untrained(const std::vector<at::Tensor>& parameters) {
  if (excluded_parameters_.empty()) return;
  std::vector<at::Tensor> untrained;
  for (const at::Tensor& parameter : parameters) {
    if (excluded_parameters_.count(parameter.unsafeGetTensorImpl()) == 0) continue;
    const bool is_trained = std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
      return window->has_one_of({parameter});
    });
    if (!is_trained) untrained.push_back(parameter);
  }
  excluded_parameters_.clear();
  if (untrained.empty()) return;
  logger_.warning_once(
      str("optimizer.step() updates ", untrained.size(),
          " parameters that the losses inside accumulate() depend on but whose models were not "
          "passed to accumulate(): they get no gradients there. Pass accumulate() every model that "
          "these losses are to train"));
}

bool Step::window_is_open(const std::vector<at::Tensor>& parameters) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const auto& window) {
    return window->holds_gradients() && window->has_one_of(parameters);
  });
}

void Step::mark_cleared(const std::vector<at::Tensor>& parameters) {
  for (const auto& model : parallel_) model->mark_cleared(parameters);
}

void Step::mark_gradients_used() {
  if (window_) window_->close();
}

void Step::restart_windows(const std::vector<at::Tensor>& parameters) {
  for (const auto& window : windows_) {
    if (!window->has_one_of(parameters)) continue;
    if (!inside_ || window != window_) {
      window->close();
    } else if (accumulation_steps == 1) {
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

at::Tensor Step::mean_loss(const at::Tensor& loss) {
  if (!weight_share_ || !loss.defined()) return loss;
  require_all("optimizer.step(closure)");
  const torch::NoGradGuard no_grad;
  // A process without items has a loss of 0 / 0.
  const at::Tensor own = *weight_share_ > 0 ? loss.detach().to(at::kDouble) * *weight_share_
                                            : at::zeros({}, at::kDouble);
  return group.reduce(own.reshape({})).to(loss.options());
}

void Step::remove_model(const torch::nn::Module* module) {
  std::erase_if(models_, [&](const auto& each) { return each.lock().get() == module; });
  std::erase_if(parallel_, [&](const auto& each) { return each->module() == module; });
}

void Step::drop_windows() {
  windows_.clear();
  window_.reset();
  excluded_parameters_.clear();
  inside_ = false;
  drop_destroyed();
}

}  // namespace hasten
