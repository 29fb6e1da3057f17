#include "hasten/optim/detail/lion.h"

#include <torch/torch.h>

#include "optim/option_range.h"

namespace hasten {

void LionOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
}

void LionOptions::visit(OptionVisitor& option) { option("betas", betas_); }

void Lion::read(const LionOptions&, const Entries& entries) const { entries.state("exp_avg"); }

void Lion::update(const LionOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<at::Tensor> exp_avgs = entries.state("exp_avg");
  entries.decay(options);
  std::vector<at::Tensor> updates = at::_foreach_mul(exp_avgs, beta1);
  at::_foreach_add_(updates, entries.gradients, 1 - beta1);
  at::_foreach_sign_(updates);
  at::_foreach_add_(entries.parameters, updates, -options.lr());
  at::_foreach_mul_(exp_avgs, beta2);
  at::_foreach_add_(exp_avgs, entries.gradients, 1 - beta2);
}

}  // namespace hasten
