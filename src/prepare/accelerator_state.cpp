#include "prepare/accelerator_state.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/training_traits.h"
#include "hasten/optim/gradients.h"
#include "optim/distinct.h"
#include "process/fork/fork_safety.h"

namespace hasten {
namespace {

// Returns the parameters of optimizers that the pass reaches and that belong neither to an open
// window nor to a prepared model, such as a temperature.
std::vector<at::Tensor> parameters_of_no_model(SavedObjects& saved, const BackwardPass& pass,
                                               AccumulationWindow& window,
                                               const Accumulation& accumulation) {
  std::vector<at::Tensor> found;
  for (const auto& optimizer : saved.optimizers()) {
    for (const at::Tensor& each : optimizer->parameters()) {
      if (!window.has_parameter(each)) found.push_back(each);
    }
  }
  if (found.empty()) return {};  // the usual case, in which nothing walks the graph
  const Leaves leaves = pass.leaves();
  std::erase_if(
      found, [&](const at::Tensor& each) { return leaves.count(each.unsafeGetTensorImpl()) == 0; });
  if (found.empty()) return {};
  TensorSet of_models;
  for (const auto& model : saved.models()) distinct(model->parameters(), of_models);
  std::vector<at::Tensor> own = distinct(found, of_models);
  // If two windows had a parameter, each would wait for the other one, and both would divide it.
  std::erase_if(own,
                [&](const at::Tensor& each) { return accumulation.holds_gradients_of({each}); });
  return own;
}

}  // namespace

AcceleratorState::AcceleratorState(Precision precision, ProcessState process, Group group,
                                   std::int64_t accumulation_steps,
                                   DistributedDataParallelKwargs ddp,
                                   DataLoaderConfiguration loader_configuration,
                                   ElasticOptions elastic_options,
                                   const GradScalerKwargs& grad_scaler)
    : precision(precision),
      process(process),
      group(std::move(group)),
      placement{.device = this->process.device, .shapes = loader_configuration.static_shapes},
      loaders(std::move(loader_configuration)),
      accumulation(accumulation_steps *
                   (elastic_options.ranks > 0 ? elastic_options.ranks / this->group.size() : 1)),
      gradients(this->group, ddp),
      elastic(elastic_options.ranks > 0
                  ? std::make_unique<ElasticRanks>(this->group, elastic_options)
                  : nullptr),
      scaling(precision == Precision::fp16 && grad_scaler.enabled
                  ? std::make_shared<LossScaling>(grad_scaler, this->group)
                  : nullptr),
      fork_hazard_(std::make_shared<ScopedForkHazard>(ForkHazard::accelerator)),
      logger_("hasten", LogLevel::passive, this->process, this->group),
      background_save(this->group, [this](const std::string& text) { logger_.warning(text); }) {
  if (scaling) synced_states.add(scaling);
}

void AcceleratorState::add_model(const std::shared_ptr<torch::nn::Module>& module) {
  const TrainingTraits* const traits = traits_of(*module);
  if (traits && placement.shapes.max_length == 0)
    placement.shapes.max_length = traits->max_length();
  drop_destroyed_models();
  accumulation.add_model(module);
  if (elastic) return elastic->add_model(*module);
  gradients.add_model(module);
}

void AcceleratorState::remove_model(const torch::nn::Module* module) {
  accumulation.remove_model(module);
  gradients.remove_model(module);
  saved.remove_model(module);
}

void AcceleratorState::drop_windows() {
  accumulation.drop_windows();
  if (elastic) elastic->drop();
  drop_destroyed_models();
}

void AcceleratorState::drop_destroyed_models() {
  accumulation.drop_destroyed_models();
  gradients.drop_destroyed_models();
}

void AcceleratorState::begin_micro_batch(const Models& models, std::optional<bool> ends_window) {
  accumulation.check_not_inside();
  drop_destroyed_models();
  if (!elastic) {
    gradients.check_not_abandoned(accumulation.enter(models));
    return accumulation.begin_micro_batch(ends_window.value_or(loaders.at_last_batch()),
                                          loaders.rows_of_batch());
  }
  const ElasticBatchInfo place = elastic->place_of(loaders.current(), loaders.current_pass());
  // If a loop ended inside a window, the next loop begins that window again.
  if (place.position == 0) accumulation.drop_windows();
  if (accumulation.enter(models).begun() == 0 && place.position > 0)
    check_without_elastic_ranks("accumulate() of other models inside a window");
  accumulation.begin_micro_batch(place.ends_window, loaders.rows_of_batch());
  elastic->begin_micro_batch(place, models);
}

void AcceleratorState::end_micro_batch() {
  accumulation.end_micro_batch();
  if (elastic) elastic->end_micro_batch();
}

void AcceleratorState::backward(BackwardPass pass) {
  check(pass);
  if (has_16_bits(pass.loss)) {
    logger_.warning_once(
        str("backward() was given a loss in ", c10::toString(pass.loss.scalar_type()),
            ", which rounds the loss and its gradient to two or three digits. Compute the loss "
            "under accelerator.autocast(), which computes losses in float, or from logits in "
            "float: logits.to(torch::kFloat)"));
  }
  drop_destroyed_models();
  accumulation.leave_unless_inside();
  pass.inputs_of_user = !pass.inputs.empty();
  if (!pass.inputs_of_user) pass.inputs = accumulation.trained_leaves(pass.loss);
  if (scaling) pass.scale = scaling->value();
  check_not_unscaled(pass);
  check_create_graph(pass);
  check_step_in_backward(pass);
  if (!accumulation.is_inside()) accumulation.drop_abandoned_windows(pass);
  gradients.reset_weight_share();
  AccumulationWindow* const window = accumulation.current();
  run_backward(pass, window);
  if (elastic && window->is_due()) close_elastic(*window);
}

void AcceleratorState::run_backward(const BackwardPass& pass, AccumulationWindow* window) {
  const PhaseScope phase(observers, StepPhase::backward);
  const auto before = window ? window->counts() : AccumulationWindow::Counts{};
  try {
    if (elastic) {
      backward_elastic(pass, window);
    } else if (gradients.is_local(pass, window)) {
      backward_local(pass, window);
    } else {
      gradients.exchange(pass, window);
    }
  } catch (...) {
    if (window) window->restore(before);
    throw;
  }
}

void AcceleratorState::check(const BackwardPass& pass) const {
  if (pass.loss.numel() != 1) {
    throw UsageError("prepare.loss-not-scalar",
                     {.what = "backward(loss)",
                      .got = str("a tensor of ", pass.loss.numel(), " elements"),
                      .expected = "one number",
                      .hint = "take the mean of the losses"});
  }
  if (precision != Precision::no && forward_passes_ == 0) {
    throw UsageError(
        "prepare.unprepared-forward",
        {.what = "backward() under mixed precision before any call of a prepared model",
         .hint = "call the model that prepare() returned, model(x): model->forward(x) and the "
                 "original module run without autocast"});
  }
}

void AcceleratorState::check_create_graph(const BackwardPass& pass) const {
  if (!pass.create_graph) return;
  const bool divides = elastic || (accumulation.is_inside() && accumulation.steps() > 1);
  if (!divides && gradients.is_local(pass, accumulation.current())) return;
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

// Throws if gradients of the pass were already divided by the scale of the loss. They cannot be
// added to gradients that were not divided.
void AcceleratorState::check_not_unscaled(const BackwardPass& pass) {
  if (!scaling) return;
  Leaves leaves;
  for (const auto& optimizer : saved.optimizers()) {
    if (!optimizer->is_unscaled) continue;
    const std::vector<at::Tensor> parameters = optimizer->parameters_with_unstepped();
    const auto has_gradient = [](const at::Tensor& each) { return each.grad().defined(); };
    if (std::none_of(parameters.begin(), parameters.end(), has_gradient)) {
      optimizer->reset_unscaling();  // something else has cleared them
      continue;
    }
    if (leaves.empty()) leaves = pass.leaves();
    const bool adds = std::any_of(
        parameters.begin(), parameters.end(),
        [&](const at::Tensor& each) { return leaves.count(each.unsafeGetTensorImpl()) > 0; });
    if (!adds) continue;
    throw UsageError(
        "prepare.scaled-losses",
        {.what = "backward(loss) with mixed_precision fp16",
         .got = "gradients of an earlier pass that are divided by the scale of the loss already",
         .expected = "step() or zero_grad() of the prepared optimizer after they are divided",
         .hint = "clip gradients, or call unscale_gradients(), when all backward passes of the "
                 "step are done"});
  }
}

// With step_in_backward, a step changes tensors that the graph has saved, so the graph cannot be
// used again.
void AcceleratorState::check_step_in_backward(const BackwardPass& pass) const {
  if (!stepping.in_backward) return;
  if (pass.create_graph) throw_needs_gradients("backward(loss, {.create_graph = true})");
  if (pass.retain_graph.value_or(false))
    throw_needs_gradients("backward(loss, {.retain_graph = true})");
  if (accumulation.is_inside() && accumulation.steps() > 1)
    throw_needs_gradients("an accumulation window of several micro-batches");
}

void AcceleratorState::backward_local(const BackwardPass& pass, AccumulationWindow* window) {
  const double weight = pass.weight;
  if (window == nullptr) {  // no accumulation: the weight of the only batch cancels
    if (weight > 0) gradients.runner().run(pass, pass.loss);
    return;
  }
  const bool was_closed = window->is_closed();
  const bool first = window->count_pass(weight);
  const bool closes = window->is_due() && first;
  // A micro-batch without items has no loss (its mean is 0 / 0) and adds nothing.
  if (weight > 0) {
    if (closes && window->batches() == 1) {
      gradients.runner().run(pass, pass.loss);  // the only micro-batch: its weight cancels
    } else {
      const bool is_divided = was_closed && window->weight() > 0;
      if (!was_closed)
        window->add_parameters(parameters_of_no_model(saved, pass, *window, accumulation));
      gradients.runner().add_gradients(pass, is_divided ? weight / window->weight() : weight);
    }
  }
  if (!closes) return;
  if (window->batches() > 1 && window->weight() > 0)
    scale_gradients_(window->parameters(), 1.0 / window->weight());
  window->close();
}

void AcceleratorState::backward_elastic(const BackwardPass& pass, AccumulationWindow* window) {
  if (window == nullptr) check_without_elastic_ranks("backward() outside accumulate()");
  if (window->is_closed() || !window->count_pass(pass.weight))
    check_without_elastic_ranks("a second backward() in a micro-batch");
  if (pass.weight > 0) gradients.runner().add_gradients(pass, pass.weight);
  elastic->add_pass(pass.weight, pass.loss);
}

// Sets the gradients of the models to the sums over all virtual ranks.
void AcceleratorState::close_elastic(AccumulationWindow& window) {
  elastic->close();
  window.close();
}

std::int64_t AcceleratorState::accumulation_steps() const {
  return elastic ? elastic->steps() : accumulation.steps();
}

void AcceleratorState::check_without_elastic_ranks(const char* call) const {
  if (!elastic) return;
  throw UsageError(
      "prepare.elastic-loop",
      {.what = str(call, " with elastic_ranks"),
       .expected = "accumulate(), backward() and step() for each batch",
       .hint = "leave out elastic_ranks, or see docs/distributed.md, \"Elastic ranks\""});
}

void AcceleratorState::check_without_scaled_losses(const char* call) const {
  if (!scaling) return;
  throw UsageError(
      "prepare.scaled-losses",
      {.what = str(call, " with mixed_precision fp16"),
       .got = "gradients that are multiplied by the scale of the loss",
       .expected = "step() of a prepared optimizer, which divides them and may skip the step",
       .hint =
           "use bf16, or grad_scaler = {.enabled = false} if float16 is enough without a scale"});
}

void AcceleratorState::check_forward(const torch::nn::Module& module) const {
  if (elastic && module.is_training() && at::GradMode::is_enabled() && !accumulation.is_inside())
    check_without_elastic_ranks("a training pass of a prepared model outside accumulate()");
}

bool AcceleratorState::close_due_windows(const std::vector<at::Tensor>& parameters) {
  if (accumulation.has_incomplete_window(parameters)) return false;
  if (elastic) {
    elastic->check_parameters(parameters);
    for (const auto& window : accumulation.due_windows_of(parameters)) {
      if (!window->is_closed()) close_elastic(*window);
    }
    return true;
  }
  gradients.throw_if_unexchanged(parameters);
  for (const auto& window : accumulation.due_windows_of(parameters))
    gradients.close(*window, parameters);
  return true;
}

void AcceleratorState::unscale(const std::vector<at::Tensor>& parameters) {
  if (!scaling) return;
  TensorSet wanted;
  distinct(parameters, wanted);
  for (const auto& optimizer : saved.optimizers()) {
    const std::vector<at::Tensor> own = optimizer->parameters();
    if (std::any_of(own.begin(), own.end(), [&](const at::Tensor& each) {
          return wanted.count(each.unsafeGetTensorImpl()) > 0;
        }))
      scaling->unscale(*optimizer);
  }
}

bool AcceleratorState::may_step(SyncedOptimizer& optimizer) {
  // Inside join_uneven_inputs the ranks do not exchange a number, because processes without data
  // would not take part.
  return !scaling || scaling->finish(optimizer, saved.optimizers(), !gradients.is_in_join());
}

bool AcceleratorState::step_was_skipped() {
  const auto optimizers = saved.optimizers();
  return std::any_of(optimizers.begin(), optimizers.end(),
                     [](const auto& each) { return each->step_was_skipped; });
}

void AcceleratorState::warn_about_untrained(const std::vector<at::Tensor>& parameters) {
  const std::size_t untrained = accumulation.take_untrained(parameters);
  if (untrained == 0) return;
  logger_.warning_once(
      str("optimizer.step() updates ", untrained,
          " parameters that the losses inside accumulate() depend on but whose models were not "
          "passed to accumulate(): they get no gradients there. Pass accumulate() every model that "
          "these losses are to train"));
}

}  // namespace hasten
