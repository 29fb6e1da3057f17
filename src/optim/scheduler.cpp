#include "hasten/optim/scheduler.h"

#include <torch/torch.h>

#include <cmath>
#include <numbers>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/metric_scheduler.h"
#include "optim/schedule_keys.h"

namespace hasten {
namespace {

using Factor = std::function<double(std::int64_t)>;
constexpr double kPi = std::numbers::pi;

// A linear warm-up from 0, then `after(progress)`. Progress grows from 0 to 1, and beyond 1 if
// training continues.
Factor with_warmup(double warmup, double total, std::function<double(double)> after) {
  return [=, after = std::move(after)](std::int64_t step) {
    const auto s = static_cast<double>(step);
    if (s < warmup) return s / std::max(1.0, warmup);
    return after((s - warmup) / std::max(1.0, total - warmup));
  };
}

double half_wave(double cycles, double progress) {
  return 0.5 * (1 + std::cos(kPi * cycles * 2 * progress));
}

// Returns min_lr as a share of the base rate, from whichever kwarg sets it.
double min_lr_ratio_of(SchedulerType type, const Kwargs& kwargs, double base_lr) {
  if (kwargs.has("min_lr") == kwargs.has("min_lr_rate"))
    throw_schedule_kwargs(type, kwargs.has("min_lr") ? "both min_lr and min_lr_rate" : "neither",
                          "one of min_lr and min_lr_rate");
  return kwargs.has("min_lr") ? kwargs.number("min_lr", 0) / base_lr
                              : kwargs.number("min_lr_rate", 0);
}

Factor polynomial(const SchedulerOptions& options, double base_lr) {
  const SchedulerType type = SchedulerType::polynomial;
  const double end = schedule_number(type, options.kwargs, "lr_end"),
               power = schedule_number(type, options.kwargs, "power");
  if (!(base_lr > end))
    throw_schedule_kwargs(type, str("lr_end ", end), str("less than the learning rate, ", base_lr));
  const double total = options.num_training_steps, warmup = options.num_warmup_steps;
  return [=](std::int64_t step) {
    const auto s = static_cast<double>(step);
    if (s < warmup) return s / std::max(1.0, warmup);
    if (s > total) return end / base_lr;
    const double left = total > warmup ? 1 - (s - warmup) / (total - warmup) : 0.0;
    return ((base_lr - end) * std::pow(left, power) + end) / base_lr;
  };
}

Factor inverse_sqrt(const SchedulerOptions& options) {
  const double warmup = options.num_warmup_steps;
  const double scale = options.kwargs.number("timescale", warmup > 0 ? warmup : 10000);
  return [=](std::int64_t step) {
    const auto s = static_cast<double>(step);
    return s < warmup ? s / std::max(1.0, warmup) : 1 / std::sqrt((s + scale - warmup) / scale);
  };
}

Factor cosine_warmup_with_min_lr(const SchedulerOptions& options, double base_lr) {
  const SchedulerType type = SchedulerType::cosine_warmup_with_min_lr;
  const double min_ratio = min_lr_ratio_of(type, options.kwargs, base_lr);
  const double cycles = schedule_number(type, options.kwargs, "num_cycles");
  const double warmup = options.num_warmup_steps, total = options.num_training_steps;
  const bool from_rate = options.kwargs.has("warmup_lr_rate");
  const double start = options.kwargs.number("warmup_lr_rate", 0);
  return [=](std::int64_t step) {
    const auto s = static_cast<double>(step);
    if (s < warmup)
      return from_rate ? start + (1 - start) * s / std::max(1.0, warmup - 1)
                       : (s + 1) / std::max(1.0, warmup);
    const double progress = (s - warmup + 1) / std::max(1.0, total - warmup);
    return std::max(0.0, half_wave(cycles, progress) * (1 - min_ratio) + min_ratio);
  };
}

// The warm-up of warmup_stable_decay, from 0 to 1 as progress goes from 0 to 1.
double warmup_factor(const std::string& shape, double progress) {
  if (shape == "linear") return progress;
  if (shape == "cosine") return 0.5 * (1 - std::cos(kPi * progress));
  return 1 - std::sqrt(1 - progress);
}

// The decay of warmup_stable_decay, from 1 to 0; a cosine ends at 0 if `cycles` is 0.5.
double decay_factor(const std::string& shape, double progress, double cycles) {
  if (shape == "linear") return 1 - progress;
  if (shape == "cosine") return half_wave(cycles, progress);
  return 1 - std::sqrt(progress);
}

Factor warmup_stable_decay(const SchedulerOptions& options) {
  const SchedulerType type = SchedulerType::warmup_stable_decay;
  const Kwargs& kwargs = options.kwargs;
  if (!kwargs.has("num_decay_steps"))
    throw_schedule_kwargs(type, "no num_decay_steps",
                          "num_decay_steps, the steps of the last phase");
  const double warmup = options.num_warmup_steps, decay = kwargs.number("num_decay_steps", 0);
  const double stable = kwargs.number(
      "num_stable_steps", static_cast<double>(options.num_training_steps) - warmup - decay);
  const double min_ratio = schedule_number(type, kwargs, "min_lr_ratio"),
               cycles = schedule_number(type, kwargs, "num_cycles");
  const std::string up = schedule_text(type, kwargs, "warmup_type"),
                    down = schedule_text(type, kwargs, "decay_type");
  for (const std::string& shape : {up, down}) {
    if (shape != "linear" && shape != "cosine" && shape != "1-sqrt")
      throw_schedule_kwargs(type, shape, "linear, cosine or 1-sqrt");
  }
  return [=](std::int64_t step) {
    const auto s = static_cast<double>(step);
    const auto above_min = [&](double factor) {
      return std::max(0.0, factor * (1 - min_ratio) + min_ratio);
    };
    if (s < warmup) return above_min(warmup_factor(up, s / std::max(1.0, warmup)));
    if (s < warmup + stable) return 1.0;
    if (s < warmup + stable + decay)
      return above_min(decay_factor(down, (s - warmup - stable) / std::max(1.0, decay), cycles));
    return min_ratio;
  };
}

}  // namespace

Factor schedule_factor(SchedulerType type, const SchedulerOptions& options, double base_lr) {
  if (!follows_metric(type)) check_schedule_keys(type, options.kwargs);
  const double warmup = options.num_warmup_steps, total = options.num_training_steps;
  const Kwargs& kwargs = options.kwargs;
  switch (type) {
    case SchedulerType::linear:
      return [=](std::int64_t step) {
        const auto s = static_cast<double>(step);
        return s < warmup ? s / std::max(1.0, warmup)
                          : std::max(0.0, (total - s) / std::max(1.0, total - warmup));
      };
    case SchedulerType::cosine: {
      const double cycles = schedule_number(type, kwargs, "num_cycles");
      return with_warmup(warmup, total, [=](double progress) {
        return std::max(0.0, half_wave(cycles, progress));
      });
    }
    case SchedulerType::cosine_with_restarts: {
      const double cycles = schedule_number(type, kwargs, "num_cycles");
      return with_warmup(warmup, total, [=](double progress) {
        return progress >= 1
                   ? 0.0
                   : std::max(0.0, 0.5 * (1 + std::cos(kPi * std::fmod(cycles * progress, 1.0))));
      });
    }
    case SchedulerType::polynomial:
      return polynomial(options, base_lr);
    case SchedulerType::constant:
      return [](std::int64_t) { return 1.0; };
    case SchedulerType::constant_with_warmup:
      return with_warmup(warmup, warmup, [](double) { return 1.0; });
    case SchedulerType::inverse_sqrt:
      return inverse_sqrt(options);
    case SchedulerType::cosine_with_min_lr: {
      const double min_ratio = min_lr_ratio_of(type, kwargs, base_lr),
                   cycles = schedule_number(type, kwargs, "num_cycles");
      return with_warmup(warmup, total, [=](double progress) {
        return std::max(0.0, half_wave(cycles, progress) * (1 - min_ratio) + min_ratio);
      });
    }
    case SchedulerType::cosine_warmup_with_min_lr:
      return cosine_warmup_with_min_lr(options, base_lr);
    case SchedulerType::warmup_stable_decay:
      return warmup_stable_decay(options);
    case SchedulerType::reduce_lr_on_plateau:
    case SchedulerType::greedy:
      throw UsageError("optim.metric-scheduler",
                       {.what = "get_scheduler()",
                        .got = std::string(name_of(type)),
                        .expected = "a schedule that depends on the step alone",
                        .hint = "use get_metric_scheduler()"});
  }
  throw UsageError("optim.unknown-scheduler",
                   {.what = "get_scheduler()",
                    .got = str("SchedulerType ", static_cast<int>(type)),
                    .expected = "a SchedulerType of the list",
                    .hint = "use one of the names in hasten/options/training_arguments.h"});
}

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, std::vector<Factor> factors)
    : torch::optim::LRScheduler(optimizer),
      optimizer_(optimizer),
      base_lrs_(get_current_lrs()),
      factors_(std::move(factors)) {
  TORCH_CHECK(factors_.size() == base_lrs_.size(), "LambdaLR: got ", factors_.size(),
              " functions for ", base_lrs_.size(), " groups");
  apply(lrs_at(0));
}

void LambdaLR::set_last_step(std::int64_t step) {
  step_count_ = static_cast<unsigned>(step);
  apply(lrs_at(step));
}

std::vector<double> LambdaLR::lrs_at(std::int64_t step) const {
  std::vector<double> lrs;
  for (std::size_t i = 0; i < base_lrs_.size(); ++i)
    lrs.push_back(base_lrs_[i] * factors_[i](step));
  return lrs;
}

void LambdaLR::apply(const std::vector<double>& lrs) {
  for (std::size_t i = 0; i < lrs.size(); ++i)
    optimizer_.param_groups()[i].options().set_lr(lrs[i]);
}

std::unique_ptr<LambdaLR> get_scheduler(SchedulerType type, torch::optim::Optimizer& optimizer,
                                        const SchedulerOptions& options) {
  std::vector<Factor> factors;
  for (const auto& group : optimizer.param_groups())
    factors.push_back(schedule_factor(type, options, group.options().get_lr()));
  return std::make_unique<LambdaLR>(optimizer, std::move(factors));
}

std::unique_ptr<LambdaLR> get_scheduler(const std::string& name, torch::optim::Optimizer& optimizer,
                                        const SchedulerOptions& options) {
  if (const auto type = from_name<SchedulerType>(name))
    return get_scheduler(*type, optimizer, options);
  std::vector<std::string> names;
  for (const std::string_view known : Names<SchedulerType>::text) names.emplace_back(known);
  throw ConfigError("optim.unknown-scheduler", {.what = "scheduler",
                                                .got = name,
                                                .expected = join(names, ", "),
                                                .hint = did_you_mean(nearest(name, names))});
}

}  // namespace hasten
