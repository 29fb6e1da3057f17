#include "hasten/optim/detail/stable_adamw.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

void StableAdamWOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
  require_at_least_0(kName, "max_lr", max_lr_);
}

void StableAdamWOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("max_lr", max_lr_);
}

void StableAdamW::read(const StableAdamWOptions&, const Entries& entries) const {
  read_moments(entries);
}

void StableAdamW::update(const StableAdamWOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const auto step = static_cast<double>(entries.synchronize_step_counts());
  // The bias correction is part of the decay rate.
  const auto debiased = [step](double beta) {
    return (std::pow(beta, step) - beta) / (std::pow(beta, step) - 1);
  };
  const double rate1 = debiased(beta1), rate2 = debiased(beta2), eps = options.eps();
  const double decay = options.weight_decay() / (options.max_lr() > 0 ? options.max_lr() : 1);
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, entries.gradients, rate1, rate2);
  for (std::size_t i = 0; i < entries.states.size(); ++i) {
    const at::Tensor& parameter = entries.parameters[i];
    // The root mean square of the gradient divided by its expected size. A value above 1 shortens
    // the step.
    const at::Tensor excess =
        entries.gradients[i].square().div_(exp_avg_sqs[i].clamp_min(eps * eps)).mean().sqrt_();
    const at::Tensor lr = excess.clamp_min_(1).reciprocal_().mul_(options.lr());
    if (decay != 0) parameter.mul_(1 - lr * decay);
    parameter.sub_((exp_avgs[i] / exp_avg_sqs[i].sqrt().add_(eps)).mul_(lr));
  }
}

}  // namespace hasten
