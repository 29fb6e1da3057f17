#include "optim/loss_scale.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"

namespace hasten {
namespace {

void check_scaler_option(bool is_good, const char* name, double got, const char* expected) {
  if (is_good) return;
  throw ConfigError(
      "optim.grad-scaler-option",
      {.what = str("a gradient scaler, ", name), .got = str(got), .expected = expected});
}

void check_scale(const char* name, double scale) {
  // The comparison comes first: the cast of a larger number is undefined.
  const bool is_float = scale > 0 && scale <= std::numeric_limits<float>::max();
  check_scaler_option(is_float && static_cast<float>(scale) > 0, name, scale, "a float above 0");
}

void check_scaler_options(const GradScalerKwargs& options) {
  check_scale("init_scale", options.init_scale);
  check_scaler_option(options.growth_factor > 1 && std::isfinite(options.growth_factor),
                      "growth_factor", options.growth_factor, "a number above 1");
  check_scaler_option(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
                      options.backoff_factor, "a number between 0 and 1");
  check_scaler_option(options.growth_interval >= 1, "growth_interval",
                      static_cast<double>(options.growth_interval), "at least 1");
  check_scaler_option(options.min_scale >= 0 && std::isfinite(options.min_scale), "min_scale",
                      options.min_scale, "at least 0");
}

// Returns the numbers of a gradient, which the division changes in place. A sparse gradient becomes
// a copy: if the rows of two tables are added, autograd gives both tables the same numbers, which
// would be divided twice. The other table may belong to another optimizer.
at::Tensor numbers_of(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.scalar_type() == at::kHalf) {
    throw UsageError("optim.fp16-gradient",
                     {.what = "a gradient scaler",
                      .got = "a gradient in float16",
                      .expected = "gradients in float, of weights in float",
                      .hint = "keep the weights in float and compute in float16 by autocast"});
  }
  if (!gradient.is_sparse()) return gradient;
  parameter.mutable_grad() = gradient.clone();
  return gradient._values();
}

}  // namespace

LossScale::LossScale(const GradScalerKwargs& options) : options_(options) {
  if (options.enabled) check_scaler_options(options);
  reset();
}

void LossScale::set(double scale) {
  check_scale("scale", scale);
  scale_ = static_cast<float>(scale);
}

void LossScale::set_options(const GradScalerKwargs& options) {
  check_scaler_options(options);
  options_ = options;
}

void LossScale::reset() {
  scale_ = static_cast<float>(options_.init_scale);
  growth_tracker_ = 0;
}

at::Tensor LossScale::times(const at::Tensor& loss) const {
  const bool has_16_bits = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (has_16_bits ? loss.to(at::kFloat) : loss) * static_cast<double>(scale_);
}

at::Tensor LossScale::unscale(const std::vector<at::Tensor>& parameters) const {
  const torch::NoGradGuard no_grad;
  std::map<std::pair<at::DeviceType, at::DeviceIndex>,
           std::map<at::ScalarType, std::vector<at::Tensor>>>
      by_device;
  for (const at::Tensor& parameter : distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    const at::Tensor numbers = numbers_of(parameter);
    const at::Device device = numbers.device();
    by_device[{device.type(), device.index()}][numbers.scalar_type()].push_back(numbers);
  }
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale_));
  at::Tensor bad;  // 0 if all gradients are finite
  for (const auto& [device, by_type] : by_device) {
    const auto options = by_type.begin()->second.front().options().dtype(at::kFloat);
    at::Tensor found = at::zeros({}, options);
    const at::Tensor factor = at::full({}, inverse, options);
    for (const auto& [type, gradients] : by_type)
      at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, factor);
    bad = bad.defined() ? bad + found.to(bad.device()) : found;
  }
  return bad.defined() ? bad.eq(0) : at::Tensor();
}

// Follows the rule of at::_amp_update_scale_, in the same type.
void LossScale::update(bool finite) {
  if (!finite) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
    growth_tracker_ = 0;
    if (scale_ >= options_.min_scale) return;
    throw DivergedError(
        "optim.loss-scale",
        {.what = "training in float16",
         .got = str("gradients that are infinite or NaN at every scale of the loss down to ",
                    scale_ / options_.backoff_factor),
         .expected = str("finite gradients at a scale of at least ", options_.min_scale),
         .hint = "the weights are those of the last step with finite gradients. Look for a loss or "
                 "an activation above 65504, the largest float16, lower the learning rate, or use "
                 "bf16"});
  }
  if (++growth_tracker_ < options_.growth_interval) return;
  const auto grown = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
  growth_tracker_ = 0;
}

}  // namespace hasten
