#include "hasten/optim/detail/lamb.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

void LambOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
}

void LambOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("bias_correction", bias_correction_);
  option("trust_clip", trust_clip_);
  option("always_adapt", always_adapt_);
}

namespace {

// Returns the norm of the parameter divided by the norm of its update, or 1 if one of them is 0.
at::Tensor trust_ratio(const at::Tensor& parameter, const at::Tensor& update, bool clips) {
  const at::Tensor of_parameter = parameter.norm(), of_update = update.norm();
  const at::Tensor is_usable = (of_parameter > 0).logical_and_(of_update > 0);
  const at::Tensor ratio = at::where(is_usable, of_parameter / of_update, 1.0);
  return clips ? ratio.clamp_max(1) : ratio;
}

}  // namespace

void Lamb::read(const LambOptions&, const Entries& entries) const { read_moments(entries); }

void Lamb::update(const LambOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const auto step = static_cast<double>(entries.synchronize_step_counts());
  const double correction1 = options.bias_correction() ? 1 - std::pow(beta1, step) : 1,
               correction2 = options.bias_correction() ? 1 - std::pow(beta2, step) : 1;
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, entries.gradients, beta1, beta2);
  std::vector<at::Tensor> denominators = at::_foreach_sqrt(exp_avg_sqs);
  at::_foreach_div_(denominators, std::sqrt(correction2));
  at::_foreach_add_(denominators, options.eps());
  std::vector<at::Tensor> updates = at::_foreach_div(exp_avgs, correction1);
  at::_foreach_div_(updates, denominators);
  if (options.weight_decay() != 0)
    at::_foreach_add_(updates, entries.parameters, options.weight_decay());
  if (options.weight_decay() != 0 || options.always_adapt()) {
    for (std::size_t i = 0; i < updates.size(); ++i)
      updates[i].mul_(trust_ratio(entries.parameters[i], updates[i], options.trust_clip()));
  }
  at::_foreach_add_(entries.parameters, updates, -options.lr());
}

}  // namespace hasten
