#include "hasten/optim/detail/adamax.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/option_range.h"

namespace hasten {

void AdamaxOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
}

void AdamaxOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
}

void Adamax::read(const AdamaxOptions&, const Entries& entries) const {
  entries.state("exp_avg");
  entries.state("exp_inf");
}

void Adamax::update(const AdamaxOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<at::Tensor> gradients = entries.gradients_with(options.weight_decay());
  const std::vector<at::Tensor> exp_avgs = entries.state("exp_avg"),
                                exp_infs = entries.state("exp_inf");
  at::_foreach_lerp_(exp_avgs, gradients, 1 - beta1);
  std::vector<at::Tensor> sizes = at::_foreach_abs(gradients);
  at::_foreach_add_(sizes, options.eps());
  at::_foreach_mul_(exp_infs, beta2);
  at::_foreach_maximum_(exp_infs, sizes);
  std::vector<at::Scalar> factors;
  for (const ParamState* state : entries.states)
    factors.emplace_back(-options.lr() / (1 - std::pow(beta1, state->step)));
  at::_foreach_addcdiv_(entries.parameters, exp_avgs, exp_infs, factors);
}

}  // namespace hasten
