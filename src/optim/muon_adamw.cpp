#include "hasten/optim/detail/muon_adamw.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/moments.h"
#include "optim/muon_step.h"
#include "optim/option_range.h"

namespace hasten {

MuonOptions MuonAdamWOptions::muon() const {
  MuonOptions options(lr());
  options.weight_decay(weight_decay()).maximize(maximize());
  options.momentum(momentum_).nesterov(nesterov_).ns_steps(ns_steps_).adjust_lr_fn(adjust_lr_fn_);
  return options;
}

void MuonAdamWOptions::check() const {
  ParamGroupOptions::check();
  muon().check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
}

void MuonAdamWOptions::visit(OptionVisitor& option) {
  option("use_muon", use_muon_);
  option("momentum", momentum_);
  option("nesterov", nesterov_);
  option("ns_steps", ns_steps_);
  option("adjust_lr_fn", adjust_lr_fn_);
  option("betas", betas_);
  option("eps", eps_);
}

// Checks every group first, so that no group is stepped if another one is refused.
void MuonAdamW::check_step() const {
  for (const auto& group : param_groups()) {
    const auto* const options = dynamic_cast<const MuonAdamWOptions*>(&group.options());
    if (options == nullptr || !options->use_muon()) continue;
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.requires_grad()) check_is_matrix(MuonAdamWOptions::kName, parameter);
    }
  }
}

void MuonAdamW::read(const MuonAdamWOptions& options, const Entries& entries) const {
  if (options.use_muon()) {
    entries.state(kMomentumBuffer);
  } else {
    read_moments(entries);
  }
}

void MuonAdamW::update(const MuonAdamWOptions& options, const Entries& entries) {
  if (options.use_muon()) return muon_step(options.muon(), entries);
  const auto [beta1, beta2] = options.betas();
  const auto step = static_cast<double>(entries.synchronize_step_counts());
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, entries.gradients, beta1, beta2);
  entries.decay(options);
  std::vector<at::Tensor> denominators = at::_foreach_sqrt(exp_avg_sqs);
  at::_foreach_div_(denominators, std::sqrt(1 - std::pow(beta2, step)));
  at::_foreach_add_(denominators, options.eps());
  at::_foreach_addcdiv_(entries.parameters, exp_avgs, denominators,
                        -options.lr() / (1 - std::pow(beta1, step)));
}

}  // namespace hasten
