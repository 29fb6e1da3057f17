#include "options/kwargs_rules.h"

#include "unit/options/support.h"

using namespace hasten;
using namespace hasten::test;

namespace {

struct Case {
  SchedulerType type;
  const char* kwargs;
  const char* text;  // part of the error; empty = fine
};
using S = SchedulerType;

}  // namespace

TEST_CASE("kwargs rules: a schedule takes its own keys and no others") {
  const std::vector<Case> cases = {
      {S::linear, "", ""},
      {S::linear, "power=1", "lr_scheduler_kwargs: unknown key power. Hint: linear takes none"},
      {S::constant, "num_cycles=1", "constant takes none"},
      {S::cosine, "num_cycles=1.5", ""},
      {S::cosine, "num_cycle=1.5", "unknown key num_cycle. Hint: did you mean num_cycles?"},
      {S::cosine, "num_cycles=x", "num_cycles: got 'x', expected a number of at least 0"},
      {S::cosine_with_restarts, "num_cycles=3", ""},
      {S::cosine_with_restarts, "num_cycles=1.5", "expected a whole number of at least 1"},
      {S::polynomial, "power=2,lr_end=0.00001", ""},
      {S::polynomial, "power=-1", "power: got '-1'"},
      {S::polynomial, "lr_end=0.1", "lr_end 0.1 is not below learning_rate 5e-05"},
      {S::inverse_sqrt, "timescale=20", ""},
      {S::inverse_sqrt, "timescale=0", "timescale"},
      {S::cosine_with_min_lr, "", "cosine_with_min_lr needs min_lr or min_lr_rate"},
      {S::cosine_with_min_lr, "min_lr=0", ""},
      {S::cosine_with_min_lr, "min_lr=0,min_lr_rate=0",
       "takes one of min_lr and min_lr_rate, not both"},
      {S::cosine_with_min_lr, "min_lr=0,warmup_lr_rate=0.1", "unknown key warmup_lr_rate"},
      {S::cosine_warmup_with_min_lr, "min_lr_rate=0.1,warmup_lr_rate=0.1", ""},
      {S::warmup_stable_decay, "num_decay_steps=10", ""},
      {S::warmup_stable_decay, "", "warmup_stable_decay needs num_decay_steps"},
      {S::warmup_stable_decay, "num_decay_steps=10,decay_type=step",
       "expected one of linear, cosine, 1-sqrt"},
      {S::warmup_stable_decay, "num_decay_steps=10,num_stable_steps=1.5",
       "num_stable_steps: got '1.5'"},
  };
  for (const Case& each : cases) {
    CAPTURE(name_of(each.type));
    CAPTURE(each.kwargs);
    const TrainingArguments arguments{.lr_scheduler_type = each.type,
                                      .lr_scheduler_kwargs = *parse_kwargs(each.kwargs)};
    const auto caught = error_of([&] { validate(arguments); });
    if (std::string(each.text).empty())
      CHECK(caught.code == "no error");
    else
      CHECK_MESSAGE(contains(caught.text, each.text), caught.text);
  }
}

TEST_CASE("kwargs rules: an optimizer takes its own keys and no others") {
  const auto check = [](OptimizerName optim, const char* text) {
    return error_of([&] { validate({.optim = optim, .optim_args = *parse_kwargs(text)}); }).text;
  };
  CHECK(check(OptimizerName::sgd, "momentum=0.9,nesterov=true") == "");
  CHECK(check(OptimizerName::sgd, "momentum=0.9,dampening=0.5") == "");
  CHECK(contains(check(OptimizerName::sgd, "weight_decay=0.1"),
                 "sgd takes momentum, dampening, nesterov"));
  CHECK(contains(check(OptimizerName::sgd, "nesterov=true"), "nesterov needs a momentum"));
  CHECK(contains(check(OptimizerName::sgd, "momentum=0.9,dampening=0.5,nesterov=true"),
                 "no dampening"));
  CHECK(contains(check(OptimizerName::sgd, "nesterov=maybe"), "expected one of true, false"));
  CHECK(contains(check(OptimizerName::sgd, "momentun=0.9"), "did you mean momentum?"));
  CHECK(contains(check(OptimizerName::adamw_torch, "momentum=0.9"), "adamw_torch takes none"));
}
