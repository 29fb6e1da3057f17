#include "hasten/optim/detail/ademamix.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

void AdEMAMixOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
  require_beta(kName, "beta3", beta3_);
  require_at_least_0(kName, "alpha", alpha_);
  require_at_least_0(kName, "t_alpha", static_cast<double>(t_alpha_));
  require_at_least_0(kName, "t_beta3", static_cast<double>(t_beta3_));
  require_option(t_beta3_ == 0 || (std::get<0>(betas_) > 0 && beta3_ > 0), kName, "t_beta3",
                 t_beta3_, "0 if beta1 or beta3 is 0");
}

void AdEMAMixOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("beta3", beta3_);
  option("alpha", alpha_);
  option("t_alpha", t_alpha_);
  option("t_beta3", t_beta3_);
}

namespace {

double alpha_at(const AdEMAMixOptions& options, double step) {
  if (options.t_alpha() == 0) return options.alpha();
  return std::min(step * options.alpha() / static_cast<double>(options.t_alpha()), options.alpha());
}

// The half-life of the slow mean grows linearly from the half-life of the fast one.
double beta3_at(const AdEMAMixOptions& options, double step) {
  if (options.t_beta3() == 0) return options.beta3();
  const double fast = std::log(std::get<0>(options.betas())), slow = std::log(options.beta3()),
               progress = step / static_cast<double>(options.t_beta3());
  return std::min(std::exp(fast * slow / ((1 - progress) * slow + progress * fast)),
                  options.beta3());
}

}  // namespace

void AdEMAMix::read(const AdEMAMixOptions&, const Entries& entries) const {
  entries.state("exp_avg_slow");
  read_moments(entries);
}

void AdEMAMix::update(const AdEMAMixOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<at::Tensor>& gradients = entries.gradients;
  const std::vector<at::Tensor> slow_avgs = entries.state("exp_avg_slow");
  std::vector<at::Scalar> corrections1, corrections2, alphas, rests;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto step = static_cast<double>(entries.states[i]->step);
    corrections1.emplace_back(1 - std::pow(beta1, step));
    corrections2.emplace_back(std::sqrt(1 - std::pow(beta2, step)));
    alphas.emplace_back(alpha_at(options, step));
    rests.emplace_back(1 - beta3_at(options, step));
  }
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, gradients, beta1, beta2);
  for (std::size_t i = 0; i < gradients.size(); ++i) slow_avgs[i].lerp_(gradients[i], rests[i]);
  entries.decay(options);
  std::vector<at::Tensor> denominators = at::_foreach_sqrt(exp_avg_sqs);
  at::_foreach_div_(denominators, corrections2);
  at::_foreach_add_(denominators, options.eps());
  std::vector<at::Tensor> updates = at::_foreach_mul(slow_avgs, alphas);
  at::_foreach_add_(updates, at::_foreach_div(exp_avgs, corrections1));
  at::_foreach_addcdiv_(entries.parameters, updates, denominators, -options.lr());
}

}  // namespace hasten
