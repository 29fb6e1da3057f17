#include "hasten/optim/grad_scaler.h"

#include <torch/torch.h>

#include <cmath>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/loss_scale.h"

namespace hasten {
namespace {

[[noreturn]] void throw_scaler_order(const char* call, const char* got, const char* hint) {
  throw UsageError("optim.grad-scaler", {.what = str("GradScaler::", call),
                                         .got = got,
                                         .expected = "scale(), unscale_() if you clip, step() "
                                                     "and update(), in this order",
                                         .hint = hint});
}

std::vector<at::Tensor> parameters_of_groups(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

template <class T>
void set_option(LossScale& scale, T GradScalerKwargs::*option, T value) {
  GradScalerKwargs options = scale.options();
  options.*option = value;
  scale.set_options(options);
}

[[noreturn]] void throw_bad_state(const std::string& got) {
  throw DataError("optim.grad-scaler-state", {.what = "GradScaler::load_state_dict",
                                              .got = got,
                                              .expected = "what state_dict() returns",
                                              .hint = "save it from a scaler that is enabled"});
}

const at::Tensor& scalar_tensor_in(const TensorDict& state, const char* name) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.numel() != 1) throw_bad_state(str("no number ", name));
  return found->second;
}

double number_in(const TensorDict& state, const char* name) {
  return scalar_tensor_in(state, name).item<double>();
}

// Reads a whole number of at least 0.
std::int64_t count_in(const TensorDict& state, const char* name) {
  const double number = number_in(state, name);
  if (number >= 0 && number < 9e15 && number == std::floor(number))
    return static_cast<std::int64_t>(number);
  throw_bad_state(str(name, " ", number));
}

}  // namespace

GradScaler::GradScaler(const GradScalerKwargs& options)
    : scale_(std::make_unique<LossScale>(options)) {}
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;
GradScaler::~GradScaler() = default;

bool GradScaler::is_enabled() const { return scale_->options().enabled; }

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return is_enabled() ? scale_->times(loss) : loss;
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& losses) const {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& loss : losses) scaled.push_back(scale(loss));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!is_enabled()) return;
  OptimizerRecord& record = records_[&optimizer];
  if (record.has_stepped)
    throw_scaler_order("unscale_", "a call after step()", "call update() after each step");
  if (record.is_unscaled)
    throw_scaler_order("unscale_", "a second call for this optimizer since the last update()",
                       "call it once for each optimizer, when all its gradients are added up");
  record.finite = scale_->unscale(parameters_of_groups(optimizer));
  record.is_unscaled = true;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!is_enabled()) {
    optimizer.step();
    return true;
  }
  if (records_[&optimizer].has_stepped)
    throw_scaler_order("step", "a second call for this optimizer since the last update()",
                       "call update() after each step");
  if (!records_[&optimizer].is_unscaled) unscale_(optimizer);
  OptimizerRecord& record = records_[&optimizer];
  if (!record.finite.defined())
    throw_scaler_order("step", "an optimizer whose parameters have no gradients",
                       "call scale(loss).backward() before");
  const bool finite = record.finite.item<bool>();
  record.finite = at::scalar_tensor(finite, at::kBool);  // update() need not wait for the device
  if (finite) optimizer.step();
  record.has_stepped = true;
  return finite;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!is_enabled()) return;
  if (new_scale) scale_->set(*new_scale);
  const auto records = std::exchange(records_, {});
  if (new_scale) return;
  bool is_recorded = false, finite = true;
  for (const auto& [optimizer, record] : records) {
    if (!record.finite.defined()) continue;
    is_recorded = true;
    finite = record.finite.item<bool>() && finite;
  }
  if (!is_recorded)
    throw_scaler_order("update", "no step since the last update()", "call step() before");
  scale_->update(finite);
}

double GradScaler::get_scale() const { return is_enabled() ? scale_->value() : 1.0; }
double GradScaler::get_growth_factor() const { return scale_->options().growth_factor; }
void GradScaler::set_growth_factor(double factor) {
  set_option(*scale_, &GradScalerKwargs::growth_factor, factor);
}
double GradScaler::get_backoff_factor() const { return scale_->options().backoff_factor; }
void GradScaler::set_backoff_factor(double factor) {
  set_option(*scale_, &GradScalerKwargs::backoff_factor, factor);
}
std::int64_t GradScaler::get_growth_interval() const { return scale_->options().growth_interval; }
void GradScaler::set_growth_interval(std::int64_t interval) {
  set_option(*scale_, &GradScalerKwargs::growth_interval, interval);
}

TensorDict GradScaler::state_dict() const {
  if (!is_enabled()) return {};
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  const auto count = [](std::int64_t value) { return at::scalar_tensor(value, at::kLong); };
  return {{"scale", number(scale_->value())},
          {"growth_factor", number(get_growth_factor())},
          {"backoff_factor", number(get_backoff_factor())},
          {"growth_interval", count(get_growth_interval())},
          {"_growth_tracker", count(scale_->growth_tracker())}};
}

void GradScaler::load_state_dict(const TensorDict& state) {
  if (!is_enabled()) return;
  // Everything is read and checked before anything changes.
  GradScalerKwargs options = scale_->options();
  const double scale = number_in(state, "scale");
  options.growth_factor = number_in(state, "growth_factor");
  options.backoff_factor = number_in(state, "backoff_factor");
  options.growth_interval = count_in(state, "growth_interval");
  const std::int64_t tracker = count_in(state, "_growth_tracker");
  GradScalerKwargs checked = options;
  checked.init_scale = scale;
  try {
    (void)LossScale(checked);
  } catch (const ConfigError& error) {
    throw_bad_state(error.what());
  }
  scale_->set_options(options);
  scale_->set(scale);
  scale_->set_growth_tracker(tracker);
}

}  // namespace hasten
