#include "hasten/optim/detail/adafactor.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "optim/option_range.h"

namespace hasten {

void AdafactorOptions::check() const {
  ParamGroupOptions::check();
  require_at_least_0(kName, "eps of squares", std::get<0>(eps_));
  require_at_least_0(kName, "eps of the scale", std::get<1>(eps_));
  require_option(clip_threshold_ > 0, kName, "clip_threshold", clip_threshold_, "above 0");
  require_option(decay_rate_ <= 0, kName, "decay_rate", decay_rate_, "at most 0");
  if (beta1_) require_beta(kName, "beta1", *beta1_);
  if (relative_step_ && lr_ != 0) {
    throw ConfigError("optim.relative-step", {.what = "Adafactor",
                                              .got = str("lr ", lr_, " and relative_step(true)"),
                                              .expected = "one of them",
                                              .hint = "set relative_step(false)"});
  }
  if (warmup_init_ && !relative_step_) {
    throw ConfigError("optim.relative-step", {.what = "Adafactor",
                                              .got = "warmup_init(true)",
                                              .expected = "relative_step(true) with it"});
  }
}

void AdafactorOptions::visit(OptionVisitor& option) {
  option("eps", eps_);
  option("clip_threshold", clip_threshold_);
  option("decay_rate", decay_rate_);
  option("beta1", beta1_);
  option("scale_parameter", scale_parameter_);
  option("relative_step", relative_step_);
  option("warmup_init", warmup_init_);
}

namespace {

constexpr const char *kRows = "exp_avg_sq_row", *kColumns = "exp_avg_sq_col";

at::Tensor root_mean_square(const at::Tensor& x) {
  return x.norm() / std::sqrt(static_cast<double>(x.numel()));
}

// Returns 1 / sqrt of the mean squares of a matrix, estimated from the mean squares of its rows and
// columns.
at::Tensor factored_rsqrt(const at::Tensor& rows, const at::Tensor& columns) {
  return (rows / rows.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1) *
         columns.unsqueeze(-2).rsqrt();
}

void average(const at::Tensor& mean, const at::Tensor& value, double decay) {
  mean.mul_(decay).add_(value, 1 - decay);
}

}  // namespace

std::vector<std::int64_t> Adafactor::state_shape(const std::string& tensor,
                                                 const at::Tensor& parameter) const {
  std::vector<std::int64_t> shape = parameter.sizes().vec();
  if (tensor == kRows) shape.pop_back();
  if (tensor == kColumns) shape.erase(shape.end() - 2);
  return shape;
}

// Returns a tensor, because the scale of the parameter is on the parameter's device.
at::Tensor Adafactor::learning_rate(const AdafactorOptions& options, const at::Tensor& parameter,
                                    std::int64_t step) {
  const auto steps = static_cast<double>(step);
  const double max_lr = options.warmup_init() ? 1e-6 * steps : 1e-2;
  const double lr = options.relative_step() ? std::min(max_lr, 1 / std::sqrt(steps)) : options.lr();
  if (!options.scale_parameter()) return at::scalar_tensor(lr, parameter.options());
  return root_mean_square(parameter).clamp_min_(std::get<1>(options.eps())).mul_(lr);
}

void Adafactor::read(const AdafactorOptions& options, const Entries& entries) const {
  for (std::size_t i = 0; i < entries.states.size(); ++i) {
    const bool is_factored = entries.parameters[i].dim() >= 2;
    entries.state(is_factored ? kRows : "exp_avg_sq", i);
    if (is_factored) entries.state(kColumns, i);
    if (options.beta1()) entries.state("exp_avg", i);
  }
}

void Adafactor::update(const AdafactorOptions& options, const Entries& entries) {
  const std::size_t count = entries.states.size();
  std::vector<at::Tensor> all_squares(count), all_columns(count), momenta(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_factored = entries.parameters[i].dim() >= 2;
    all_squares[i] = entries.state(is_factored ? kRows : "exp_avg_sq", i);
    if (is_factored) all_columns[i] = entries.state(kColumns, i);
    if (options.beta1()) momenta[i] = entries.state("exp_avg", i);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor &parameter = entries.parameters[i], &gradient = entries.gradients[i];
    const std::int64_t step = entries.states[i]->step;
    const at::Tensor lr = learning_rate(options, parameter, step);
    const double decay = 1 - std::pow(static_cast<double>(step), options.decay_rate());

    at::Tensor update = gradient.square().add_(std::get<0>(options.eps()));
    if (parameter.dim() >= 2) {
      const at::Tensor &rows = all_squares[i], &columns = all_columns[i];
      average(rows, update.mean(-1), decay);
      average(columns, update.mean(-2), decay);
      update = factored_rsqrt(rows, columns).mul_(gradient);
    } else {
      const at::Tensor& squares = all_squares[i];
      average(squares, update, decay);
      update = squares.rsqrt().mul_(gradient);
    }
    update.div_(root_mean_square(update).div_(options.clip_threshold()).clamp_min_(1)).mul_(lr);
    if (options.beta1()) {
      average(momenta[i], update, *options.beta1());
      update = momenta[i];
    }
    if (options.weight_decay() != 0) parameter.addcmul_(parameter, lr, -options.weight_decay());
    parameter.sub_(update);
  }
}

}  // namespace hasten
