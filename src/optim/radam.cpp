#include "hasten/optim/detail/radam.h"

#include <torch/torch.h>

#include <cmath>

#include "optim/moments.h"
#include "optim/option_range.h"

namespace hasten {

void RAdamOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
}

void RAdamOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("decoupled_weight_decay", decoupled_weight_decay_);
}

namespace {

// Returns the factor of Adam's step after this many steps, which grows towards 1. Returns nullopt
// while the second moment has seen too few gradients.
std::optional<double> rectification(double beta2, double step) {
  const double power = std::pow(beta2, step), longest = 2 / (1 - beta2) - 1,
               length = longest - 2 * step * power / (1 - power);
  if (length <= 5) return std::nullopt;
  return std::sqrt((length - 4) * (length - 2) * longest /
                   ((longest - 4) * (longest - 2) * length));
}

}  // namespace

void RAdam::read(const RAdamOptions&, const Entries& entries) const { read_moments(entries); }

void RAdam::update(const RAdamOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<at::Tensor> gradients = decayed_gradients(options, entries);
  const auto [exp_avgs, exp_avg_sqs] = update_moments(entries, gradients, beta1, beta2);
  decay_parameters(options, entries);
  for (std::size_t i = 0; i < entries.states.size(); ++i) {
    const auto step = static_cast<double>(entries.states[i]->step);
    const double lr = options.lr() / (1 - std::pow(beta1, step));
    const std::optional<double> factor = rectification(beta2, step);
    if (factor) {
      const double correction = std::sqrt(1 - std::pow(beta2, step));
      entries.parameters[i].addcdiv_(exp_avgs[i], exp_avg_sqs[i].sqrt().add_(options.eps()),
                                     -lr * *factor * correction);
    } else {
      entries.parameters[i].sub_(exp_avgs[i], lr);
    }
  }
}

}  // namespace hasten
