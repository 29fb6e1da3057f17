#include "hasten/optim/detail/nadam.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

void NAdamOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
  require_at_least_0(kName, "momentum_decay", momentum_decay_);
}

void NAdamOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("momentum_decay", momentum_decay_);
  option("decoupled_weight_decay", decoupled_weight_decay_);
}

void NAdam::read(const NAdamOptions&, const Entries& entries) const { read_moments(entries); }

void NAdam::update(const NAdamOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const double lr = options.lr();
  const std::vector<at::Tensor> gradients = decayed_gradients(options, entries);
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, gradients, beta1, beta2);
  decay_parameters(options, entries);

  const auto momentum_at = [&, beta1 = beta1](double step) {
    return beta1 * (1 - 0.5 * std::pow(0.96, step * options.momentum_decay()));
  };
  std::vector<at::Scalar> corrections, of_gradients, of_averages;
  for (ParamState* state : entries.states) {
    const auto step = static_cast<double>(state->step);
    const double momentum = momentum_at(step), next = momentum_at(step + 1);
    double& product = state->numbers.try_emplace("mu_product", 1.0).first->second;
    product *= momentum;
    corrections.emplace_back(1 - std::pow(beta2, step));
    of_gradients.emplace_back(-lr * (1 - momentum) / (1 - product));
    of_averages.emplace_back(-lr * next / (1 - product * next));
  }
  std::vector<at::Tensor> denominators = at::_foreach_div(exp_avg_sqs, corrections);
  at::_foreach_sqrt_(denominators);
  at::_foreach_add_(denominators, options.eps());
  at::_foreach_addcdiv_(entries.parameters, gradients, denominators, of_gradients);
  at::_foreach_addcdiv_(entries.parameters, exp_avgs, denominators, of_averages);
}

}  // namespace hasten
