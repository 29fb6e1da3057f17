#include "hasten/optim/detail/schedule_free.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "optim/distinct.h"
#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

namespace {

void check_averaging(const char* optimizer, const Averaging& averaging) {
  require_at_least_0(optimizer, "warmup_steps", static_cast<double>(averaging.warmup_steps));
}

void visit_averaging(OptionVisitor& option, Averaging& averaging) {
  option("warmup_steps", averaging.warmup_steps);
  option("r", averaging.r);
  option("weight_lr_power", averaging.weight_lr_power);
}

// The learning rate of a step, and the weight of its parameters in the mean.
struct AveragingStep {
  double lr, weight;
};

// The sum of the averaging weights so far is stored in the states, so that a resumed run has it.
AveragingStep next_step(const ParamGroupOptions& options, const Averaging& averaging,
                        std::int64_t step, const std::vector<ParamState*>& states) {
  const auto k = static_cast<double>(step), warmup = static_cast<double>(averaging.warmup_steps);
  const double lr = options.lr() * (k <= warmup ? k / warmup : 1);
  double highest = lr, sum = 0;
  for (ParamState* state : states) {
    highest = std::max(highest, state->numbers["lr_max"]);
    sum = std::max(sum, state->numbers["weight_sum"]);
  }
  const double weight = std::pow(k, averaging.r) * std::pow(highest, averaging.weight_lr_power);
  for (ParamState* state : states) {
    state->numbers["lr_max"] = highest;
    state->numbers["weight_sum"] = sum + weight;
  }
  return {.lr = lr, .weight = sum + weight > 0 ? weight / (sum + weight) : 0};
}

// Moves parameters towards the weights without averaging ("z"), or away from them.
void move_parameters(torch::optim::Optimizer& optimizer,
                     const std::function<double(const torch::optim::OptimizerOptions&)>& weight) {
  const torch::NoGradGuard no_grad;
  TensorSet seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : distinct(group.params(), seen)) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      const auto& tensors = static_cast<const ParamState&>(*found->second).tensors;
      parameter.lerp_(tensors.at("z"), weight(group.options()));
    }
  }
}

}  // namespace

void ScheduleFreeAdamWOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_option(std::get<0>(betas_) > 0, kName, "beta1", std::get<0>(betas_), "above 0");
  require_at_least_0(kName, "eps", eps_);
  check_averaging(kName, averaging_);
}

void ScheduleFreeAdamWOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  visit_averaging(option, averaging_);
}

void ScheduleFreeSGDOptions::check() const {
  ParamGroupOptions::check();
  require_option(momentum_ > 0 && momentum_ < 1, kName, "momentum", momentum_, "above 0, below 1");
  check_averaging(kName, averaging_);
}

void ScheduleFreeSGDOptions::visit(OptionVisitor& option) {
  option("momentum", momentum_);
  visit_averaging(option, averaging_);
}

template <class Options>
void ScheduleFree<Options>::train() {
  if (is_training_) return;
  move_parameters(*this, [](const auto& options) {
    return 1 - static_cast<const Options&>(options).interpolation();
  });
  is_training_ = true;
}

template <class Options>
void ScheduleFree<Options>::eval() {
  if (!is_training_) return;
  move_parameters(*this, [](const auto& options) {
    return 1 - 1 / static_cast<const Options&>(options).interpolation();
  });
  is_training_ = false;
}

template <class Options>
void ScheduleFree<Options>::check_step() const {
  if (is_training_) return;
  throw UsageError("optim.eval-mode", {.what = str("hasten::", Options::kName, ", step()"),
                                       .got = "the weights of eval()",
                                       .expected = "the weights of train()",
                                       .hint = "call train() before training, and eval() before "
                                               "evaluating or saving"});
}

template <class Options>
void ScheduleFree<Options>::read(const Options&, const StatefulOptimizer::Entries& entries) const {
  entries.state_from_parameters("z");
  if constexpr (std::is_same_v<Options, ScheduleFreeAdamWOptions>) entries.state("exp_avg_sq");
}

template <class Options>
void ScheduleFree<Options>::update(const Options& options,
                                   const StatefulOptimizer::Entries& entries) {
  const std::int64_t count = entries.synchronize_step_counts();
  const std::vector<at::Tensor> zs = entries.state_from_parameters("z");
  std::vector<at::Tensor> exp_avg_sqs;
  if constexpr (std::is_same_v<Options, ScheduleFreeAdamWOptions>)
    exp_avg_sqs = entries.state("exp_avg_sq");
  // Changes the states, so every tensor has been checked before.
  const AveragingStep step = next_step(options, options.averaging(), count, entries.states);
  std::vector<at::Tensor> updates;
  if constexpr (std::is_same_v<Options, ScheduleFreeAdamWOptions>) {
    const double beta2 = std::get<1>(options.betas());
    update_second_moments(exp_avg_sqs, entries.gradients, beta2);
    updates = at::_foreach_div(exp_avg_sqs, 1 - std::pow(beta2, count));
    at::_foreach_sqrt_(updates);
    at::_foreach_add_(updates, options.eps());
    updates = at::_foreach_div(entries.gradients, updates);
    if (options.weight_decay() != 0)
      at::_foreach_add_(updates, entries.parameters, options.weight_decay());
  } else {
    updates = entries.gradients_with(options.weight_decay());
  }
  // Moves the trained weights directly, without computing the mean.
  at::_foreach_lerp_(entries.parameters, zs, step.weight);
  at::_foreach_add_(entries.parameters, updates,
                    step.lr * (options.interpolation() * (1 - step.weight) - 1));
  at::_foreach_add_(zs, updates, -step.lr);
}

template <class Options>
void ScheduleFree<Options>::save(torch::serialize::OutputArchive& archive) const {
  StatefulOptimizer::save(archive);
  archive.write("is_training", c10::IValue(is_training_));
}

template <class Options>
void ScheduleFree<Options>::load(torch::serialize::InputArchive& archive) {
  c10::IValue is_training;
  archive.read("is_training", is_training);
  const bool was_training = is_training.toBool();
  StatefulOptimizer::load(archive);
  is_training_ = was_training;
}

template class ScheduleFree<ScheduleFreeAdamWOptions>;
template class ScheduleFree<ScheduleFreeSGDOptions>;

}  // namespace hasten
