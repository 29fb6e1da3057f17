#include "hasten/optim/metric_scheduler.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/schedule_keys.h"

namespace hasten {
namespace {

struct MetricRules {
  bool higher_is_better, relative;
  double factor, patience, threshold, cooldown, min_lr, eps;
};

// The counters are doubles, so that the state is a map of doubles.
class PlateauScheduler : public MetricScheduler {
 public:
  PlateauScheduler(torch::optim::Optimizer& optimizer, const MetricRules& rules)
      : MetricScheduler(optimizer), rules_(rules), best_(worst()) {}

  void step(double metric) override {
    if (is_better(metric)) {
      best_ = metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooldown_ > 0) {
      --cooldown_;
      bad_ = 0;
    }
    if (bad_ <= rules_.patience) return;
    reduce();
    cooldown_ = rules_.cooldown;
    bad_ = 0;
  }

  std::map<std::string, double> state() const override {
    std::map<std::string, double> out = {{"bad", bad_}, {"cooldown", cooldown_}};
    if (std::isfinite(best_)) out["best"] = best_;
    const std::vector<double> lrs = get_last_lr();
    for (std::size_t i = 0; i < lrs.size(); ++i) out[str("lr.", i)] = lrs[i];
    return out;
  }

  void set_state(const std::map<std::string, double>& state) override {
    bad_ = state.at("bad");
    cooldown_ = state.at("cooldown");
    const auto best = state.find("best");
    best_ = best == state.end() ? worst() : best->second;
    for (std::size_t i = 0; i < optimizer_.param_groups().size(); ++i)
      optimizer_.param_groups()[i].options().set_lr(state.at(str("lr.", i)));
  }

 protected:
  double worst() const {
    const double infinity = std::numeric_limits<double>::infinity();
    return rules_.higher_is_better ? -infinity : infinity;
  }

  bool is_better(double metric) const {
    const double sign = rules_.higher_is_better ? 1 : -1;
    const double bound =
        rules_.relative ? best_ * (1 + sign * rules_.threshold) : best_ + sign * rules_.threshold;
    return rules_.higher_is_better ? metric > bound : metric < bound;
  }

  void reduce() {
    for (auto& group : optimizer_.param_groups()) {
      const double lr = group.options().get_lr(),
                   reduced = std::max(lr * rules_.factor, rules_.min_lr);
      if (lr - reduced > rules_.eps) group.options().set_lr(reduced);
    }
  }

  MetricRules rules_;
  double best_, bad_ = 0, cooldown_ = 0;
};

struct GreedyRules {
  double max_lr, warmup, reset_start;
  std::size_t window;  // 0 means no smoothing
};

class GreedyScheduler : public PlateauScheduler {
 public:
  GreedyScheduler(torch::optim::Optimizer& optimizer, const MetricRules& rules,
                  const GreedyRules& greedy)
      : PlateauScheduler(optimizer, rules),
        greedy_(greedy),
        first_lrs_(get_last_lr()),
        before_reset_(greedy.reset_start) {}

  void step(double metric) override {
    metric = smoothed(metric);
    if (cooldown_ > 0 || warmup_ > 0) {
      --(cooldown_ > 0 ? cooldown_ : warmup_);
      bad_ = good_ = 0;
      return;
    }
    if (is_better(metric)) {
      best_ = metric;
      bad_ = 0;
      ++good_;
    } else {
      ++bad_;
      good_ = 0;
    }
    if (good_ > rules_.patience) {
      increase();
      warmup_ = greedy_.warmup;
      good_ = 0;
    } else if (bad_ > rules_.patience) {
      reduce_or_reset();
      cooldown_ = rules_.cooldown;
      bad_ = 0;
    }
  }

  std::map<std::string, double> state() const override {
    std::map<std::string, double> out = PlateauScheduler::state();
    out["good"] = good_;
    out["warmup"] = warmup_;
    out["before_reset"] = before_reset_;
    out["sum"] = sum_;
    for (std::size_t i = 0; i < window_.size(); ++i) out[str("window.", i)] = window_[i];
    for (std::size_t i = 0; i < first_lrs_.size(); ++i) out[str("first_lr.", i)] = first_lrs_[i];
    return out;
  }

  void set_state(const std::map<std::string, double>& state) override {
    PlateauScheduler::set_state(state);
    good_ = state.at("good");
    warmup_ = state.at("warmup");
    before_reset_ = state.at("before_reset");
    sum_ = state.at("sum");
    window_.clear();
    for (std::size_t i = 0; state.contains(str("window.", i)); ++i) {
      const double metric = state.at(str("window.", i));
      if (std::isfinite(metric)) window_.push_back(metric);
    }
    // Earlier versions added every metric to the window, and a NaN stayed in the sum for good.
    if (!std::isfinite(sum_)) sum_ = std::accumulate(window_.begin(), window_.end(), 0.0);
    for (std::size_t i = 0; i < first_lrs_.size(); ++i)
      first_lrs_[i] = state.at(str("first_lr.", i));
  }

 private:
  // Returns the mean of the window, which has the finite metrics only. A metric that is not finite
  // is returned as it is, so that it affects one evaluation only.
  double smoothed(double metric) {
    if (greedy_.window == 0 || !std::isfinite(metric)) return metric;
    window_.push_back(metric);
    sum_ += metric;
    if (window_.size() > greedy_.window) {
      sum_ -= window_.front();
      window_.pop_front();
    }
    return sum_ / static_cast<double>(window_.size());
  }

  void increase() {
    for (auto& group : optimizer_.param_groups()) {
      const double lr = group.options().get_lr(),
                   increased = std::min(lr / rules_.factor, greedy_.max_lr);
      if (increased - lr > rules_.eps) group.options().set_lr(increased);
    }
    before_reset_ = greedy_.reset_start;
  }

  void reduce_or_reset() {
    reduce();
    const std::vector<double> lrs = get_last_lr();
    if (std::any_of(lrs.begin(), lrs.end(), [&](double lr) { return lr > rules_.min_lr; })) return;
    if (--before_reset_ > 0) return;
    for (std::size_t i = 0; i < lrs.size(); ++i)
      optimizer_.param_groups()[i].options().set_lr(first_lrs_[i]);
    best_ = worst();
    good_ = warmup_ = sum_ = 0;
    before_reset_ = greedy_.reset_start;
    window_.clear();
  }

  GreedyRules greedy_;
  std::vector<double> first_lrs_;
  double good_ = 0, warmup_ = 0, before_reset_, sum_ = 0;
  std::deque<double> window_;
};

class MetricKwargs {
 public:
  MetricKwargs(SchedulerType type, const Kwargs& kwargs) : type_(type), kwargs_(kwargs) {}

  double at_least_0(const std::string& name) const {
    const double value = schedule_number(type_, kwargs_, name);
    if (!(value >= 0)) throw_option(str(name, " ", value), "a number of at least 0");
    return value;
  }
  // The Trainer sets `mode` by greater_is_better. Without it, a lower metric is better, as in
  // PyTorch's ReduceLROnPlateau.
  bool higher_is_better() const {
    return is_first("mode", kwargs_.text("mode", "min"), "max", "min");
  }
  bool is_relative() const {
    const std::string name = "threshold_mode";
    return is_first(name, schedule_text(type_, kwargs_, name), "rel", "abs");
  }
  bool flag(const std::string& name) const { return schedule_flag(type_, kwargs_, name); }
  [[noreturn]] void throw_option(const std::string& got, const std::string& expected) const {
    throw_schedule_kwargs(type_, got, expected);
  }

 private:
  // Returns true for `yes` and false for `no`.
  bool is_first(const std::string& name, const std::string& word, const std::string& yes,
                const std::string& no) const {
    if (word != yes && word != no) throw_option(str(name, " ", word), str(no, " or ", yes));
    return word == yes;
  }

  SchedulerType type_;
  const Kwargs& kwargs_;
};

MetricRules metric_rules(const MetricKwargs& kwargs, bool greedy) {
  const MetricRules rules = {.higher_is_better = kwargs.higher_is_better(),
                             .relative = kwargs.is_relative(),
                             .factor = kwargs.at_least_0("factor"),
                             .patience = kwargs.at_least_0("patience"),
                             .threshold = kwargs.at_least_0("threshold"),
                             .cooldown = kwargs.at_least_0("cooldown"),
                             .min_lr = kwargs.at_least_0("min_lr"),
                             .eps = kwargs.at_least_0("eps")};
  if (rules.factor >= 1 || (greedy && rules.factor == 0))
    kwargs.throw_option(str("factor ", rules.factor), greedy ? "above 0 and below 1" : "below 1");
  return rules;
}

}  // namespace

std::vector<double> MetricScheduler::get_last_lr() const {
  std::vector<double> lrs;
  for (const auto& group : optimizer_.param_groups()) lrs.push_back(group.options().get_lr());
  return lrs;
}

std::unique_ptr<MetricScheduler> get_metric_scheduler(SchedulerType type,
                                                      torch::optim::Optimizer& optimizer,
                                                      const Kwargs& kwargs) {
  if (type != SchedulerType::reduce_lr_on_plateau && type != SchedulerType::greedy) {
    throw UsageError("optim.unknown-scheduler", {.what = "get_metric_scheduler()",
                                                 .got = std::string(name_of(type)),
                                                 .expected = "reduce_lr_on_plateau or greedy",
                                                 .hint = "use get_scheduler()"});
  }
  check_schedule_keys(type, kwargs);
  const MetricKwargs checked(type, kwargs);
  if (type == SchedulerType::reduce_lr_on_plateau)
    return std::make_unique<PlateauScheduler>(optimizer, metric_rules(checked, false));
  const double window = checked.at_least_0("window_size");
  if (window < 1) checked.throw_option(str("window_size ", window), "at least 1");
  return std::make_unique<GreedyScheduler>(
      optimizer, metric_rules(checked, true),
      GreedyRules{.max_lr = checked.at_least_0("max_lr"),
                  .warmup = checked.at_least_0("warmup"),
                  .reset_start = checked.at_least_0("reset_start"),
                  .window = checked.flag("smooth") ? static_cast<std::size_t>(window) : 0});
}

}  // namespace hasten
