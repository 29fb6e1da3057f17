// The keyword arguments that schedules accept and refuse.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"
#include "options/kwarg_rules.h"
#include "unit/code_of.h"

namespace optim_schedule_keys_test {

using namespace hasten;

namespace {

struct OneParameter {
  torch::optim::SGD sgd{{at::ones({1}).requires_grad_()}, torch::optim::SGDOptions(0.1)};
  void make(SchedulerType type, const Kwargs& kwargs) {
    if (follows_metric(type)) {
      (void)get_metric_scheduler(type, sgd, kwargs);
    } else {
      (void)get_scheduler(type, sgd,
                          {.num_warmup_steps = 1, .num_training_steps = 10, .kwargs = kwargs});
    }
  }
  std::string refusal(SchedulerType type, const Kwargs& kwargs) {
    try {
      make(type, kwargs);
    } catch (const Error& error) {
      return str(error.code(), ": ", error.what());
    }
    return "none";
  }
};

// Returns the rates of some steps or evaluations.
std::vector<double> rates_of(SchedulerType type, Kwargs kwargs) {
  if (type == SchedulerType::warmup_stable_decay) kwargs.set("num_decay_steps", 6);
  if (type == SchedulerType::cosine_with_min_lr || type == SchedulerType::cosine_warmup_with_min_lr)
    kwargs.set("min_lr_rate", 0.1);
  std::vector<double> rates;
  if (!follows_metric(type)) {
    const auto factor = schedule_factor(
        type, {.num_warmup_steps = 4, .num_training_steps = 20, .kwargs = kwargs}, 0.1);
    for (std::int64_t step = 0; step < 24; ++step) rates.push_back(factor(step));
    return rates;
  }
  OneParameter one;
  const auto schedule = get_metric_scheduler(type, one.sgd, kwargs);
  for (int evaluation = 0; evaluation < 60; ++evaluation) {
    schedule->step(evaluation < 30 ? 1.0 : 0.9 - 0.01 * evaluation);
    rates.push_back(schedule->get_last_lr().at(0));
  }
  return rates;
}

}  // namespace

TEST_CASE("schedule keys: a schedule names the keys that it takes when it refuses one") {
  OneParameter one;
  CHECK(one.refusal(SchedulerType::linear, {{"power", 2}}) ==
        "optim.scheduler-kwargs: lr_scheduler_kwargs of linear: got power, expected none");
  CHECK(one.refusal(SchedulerType::polynomial, {{"powr", 2}}) ==
        "optim.scheduler-kwargs: lr_scheduler_kwargs of polynomial: got powr, expected lr_end, "
        "power");
  CHECK(one.refusal(SchedulerType::reduce_lr_on_plateau, {{"max_lr", 1}}) ==
        "optim.scheduler-kwargs: lr_scheduler_kwargs of reduce_lr_on_plateau: got max_lr, expected "
        "cooldown, eps, factor, min_lr, mode, patience, threshold, threshold_mode");
}

TEST_CASE("schedule keys: a schedule takes each key that its training argument takes") {
  OneParameter one;
  CHECK(one.refusal(SchedulerType::polynomial, {{"power", 2}, {"lr_end", 0}}) == "none");
  CHECK(one.refusal(SchedulerType::greedy, {{"max_lr", 1}, {"factor", 0.5}}) == "none");
  CHECK(one.refusal(SchedulerType::reduce_lr_on_plateau, {{"patience", 2}}) == "none");
  CHECK(one.refusal(SchedulerType::reduce_lr_on_plateau, {{"factor", 0}}) == "none");
  // A key is refused as unknown only if the table does not have it.
  for (const config::KwargRule& rule : config::schedule_rules()) {
    CAPTURE(rule.owner);
    CAPTURE(rule.name);
    const SchedulerType type = from_name<SchedulerType>(rule.owner).value();
    const std::string key(rule.name);
    const KwargValue value =
        rule.choices.empty() ? KwargValue(0.5) : KwargValue(rule.choices.front());
    const std::string refusal = one.refusal(type, {{key, value}});
    CHECK(refusal.find("got " + key + ",") == std::string::npos);
  }
}

TEST_CASE("schedule keys: a schedule without a key has the default of the reference page") {
  int compared = 0;
  for (const config::KwargRule& rule : config::schedule_rules()) {
    // A text such as "the remaining steps" describes a default that depends on other values.
    const std::string_view text = rule.default_text;
    if (text == "required" || text.find(' ') != std::string_view::npos) continue;
    CAPTURE(rule.owner);
    CAPTURE(rule.name);
    const SchedulerType type = from_name<SchedulerType>(rule.owner).value();
    CHECK(rates_of(type, {}) == rates_of(type, {{std::string(rule.name), KwargValue(text)}}));
    ++compared;
  }
  CHECK(compared > 20);
}

TEST_CASE("schedule keys: defaults come from the table") {
  const auto& rules = config::schedule_rules();
  CHECK(config::default_of(rules, "polynomial", "lr_end") == KwargValue(1e-7));
  CHECK(config::default_of(rules, "greedy", "factor") == KwargValue(0.95));
  CHECK(config::default_of(rules, "warmup_stable_decay", "decay_type") == KwargValue("cosine"));
  CHECK_THROWS_AS(config::default_of(rules, "linear", "power"), std::out_of_range);
}

}  // namespace optim_schedule_keys_test
