#include "options/training_rules.h"

#include "unit/options/support.h"

namespace options_training_rules_test {

using namespace hasten;
using namespace hasten::test;

namespace {

struct Case {
  SchedulerType type;
  const char* kwargs;
  const char* text;  // part of the error; empty if valid
};
using Schedule = SchedulerType;

}  // namespace

TEST_CASE("kwargs rules: a word in any case of letters gets the spelling of its rule") {
  const auto optim_args = [](OptimizerName optim, const Kwargs& kwargs) {
    return to_text(resolved({.optim = optim, .optim_args = kwargs}).optim_args);
  };
  CHECK(optim_args(OptimizerName::adamw_torch_fused, {{"state_dtype", "BFloat16"}}) ==
        "state_dtype=bfloat16");
  CHECK(optim_args(OptimizerName::muon, {{"adjust_lr_fn", "Original"}, {"nesterov", "True"}}) ==
        "adjust_lr_fn=original,nesterov=true");
  CHECK(optim_args(OptimizerName::lbfgs, {{"line_search_fn", "Strong_Wolfe"}, {"max_iter", 3}}) ==
        "line_search_fn=strong_wolfe,max_iter=3");
  CHECK(optim_args(OptimizerName::adamw_8bit, {{"embedding_bits", 8}}) == "embedding_bits=8");

  const auto schedule_kwargs = [](SchedulerType type, const Kwargs& kwargs) {
    return to_text(resolved({.lr_scheduler_type = type,
                             .lr_scheduler_kwargs = kwargs,
                             .eval_strategy = IntervalStrategy::epoch})
                       .lr_scheduler_kwargs);
  };
  CHECK(schedule_kwargs(
            SchedulerType::warmup_stable_decay,
            {{"num_decay_steps", 10}, {"warmup_type", "Linear"}, {"decay_type", "COSINE"}}) ==
        "decay_type=cosine,num_decay_steps=10,warmup_type=linear");
  CHECK(schedule_kwargs(SchedulerType::greedy, {{"mode", "MIN"}, {"threshold_mode", "ABS"}}) ==
        "mode=min,threshold_mode=abs");

  const TrainingArguments others =
      resolved({.activation_checkpointing = true,
                .activation_checkpointing_kwargs = {{"policy", "Selective"}, {"modules", "A.*"}},
                .accelerator_config = {{"split_batches", "True"}}});
  CHECK(to_text(others.activation_checkpointing_kwargs) == "modules=A.*,policy=selective");
  CHECK(to_text(others.accelerator_config) == "split_batches=true");
  // The command resolves its arguments in the same way.
  CHECK(to_text(parse_with_model({"--optim_args", "state_dtype=BFloat16"}).arguments.optim_args) ==
        "state_dtype=bfloat16");
}

TEST_CASE("kwargs rules: a schedule accepts its own keys and no others") {
  const std::vector<Case> cases = {
      {Schedule::linear, "", ""},
      {Schedule::linear, "power=1",
       "lr_scheduler_kwargs: unknown key power. Hint: linear takes none"},
      {Schedule::constant, "num_cycles=1", "constant takes none"},
      {Schedule::cosine, "num_cycles=1.5", ""},
      {Schedule::cosine, "num_cycle=1.5", "unknown key num_cycle. Hint: did you mean num_cycles?"},
      {Schedule::cosine, "num_cycles=x", "num_cycles: got 'x', expected a number of at least 0"},
      {Schedule::cosine_with_restarts, "num_cycles=3", ""},
      {Schedule::cosine_with_restarts, "num_cycles=1.5", "expected a whole number of at least 1"},
      {Schedule::polynomial, "power=2,lr_end=0.00001", ""},
      {Schedule::polynomial, "power=-1", "power: got '-1'"},
      {Schedule::polynomial, "lr_end=0.1", "lr_end 0.1 is not below learning_rate 5e-05"},
      {Schedule::inverse_sqrt, "timescale=20", ""},
      {Schedule::inverse_sqrt, "timescale=0", "timescale"},
      {Schedule::cosine_with_min_lr, "", "cosine_with_min_lr needs min_lr or min_lr_rate"},
      {Schedule::cosine_with_min_lr, "min_lr=0", ""},
      {Schedule::cosine_with_min_lr, "min_lr=0,min_lr_rate=0",
       "takes one of min_lr and min_lr_rate, not both"},
      {Schedule::cosine_with_min_lr, "min_lr=0,warmup_lr_rate=0.1", "unknown key warmup_lr_rate"},
      {Schedule::cosine_warmup_with_min_lr, "min_lr_rate=0.1,warmup_lr_rate=0.1", ""},
      {Schedule::warmup_stable_decay, "num_decay_steps=10", ""},
      {Schedule::warmup_stable_decay, "", "warmup_stable_decay needs num_decay_steps"},
      {Schedule::warmup_stable_decay, "num_decay_steps=10,decay_type=step",
       "expected one of linear, cosine, 1-sqrt"},
      {Schedule::warmup_stable_decay, "num_decay_steps=10,num_stable_steps=1.5",
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

TEST_CASE("kwargs rules: an optimizer accepts its own keys and no others") {
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
  CHECK(contains(check(OptimizerName::adamw_torch, "momentum=0.9"), "adamw_torch takes "));
  CHECK(check(OptimizerName::adafactor, "decay_rate=-0.7,beta1=0.9,scale_parameter=True") == "");
  CHECK(contains(check(OptimizerName::adafactor, "clip_threshold=0"), "a number above 0"));
  CHECK(check(OptimizerName::ademamix, "beta3=0.99,alpha=8,t_alpha=10,t_beta3=10") == "");
  CHECK(contains(check(OptimizerName::ademamix, "beta3=1"), "expected a number in [0, 1)"));
  CHECK(contains(check(OptimizerName::ademamix, "t_alpha=1.5"), "a whole number"));
  CHECK(check(OptimizerName::stable_adamw, "decouple_lr=true,max_lr=0.001") == "");
  CHECK(contains(check(OptimizerName::stable_adamw, "max_lr=0.001"), "without decouple_lr"));
  CHECK(contains(check(OptimizerName::schedule_free_sgd, "momentum=0"), "in (0, 1)"));
}

TEST_CASE("kwargs rules: a schedule that follows a metric needs evaluations and one direction") {
  const auto check = [](const char* text, std::optional<bool> greater = {},
                        IntervalStrategy when = IntervalStrategy::epoch) {
    return error_of([&] {
             validate({.lr_scheduler_type = SchedulerType::greedy,
                       .lr_scheduler_kwargs = *parse_kwargs(text),
                       .eval_strategy = when,
                       .greater_is_better = greater});
           })
        .text;
  };
  CHECK(check("factor=0.5,patience=2,smooth=true,window_size=5,max_lr=0.1") == "");
  CHECK(check("mode=max", true) == "");
  CHECK(contains(check("", {}, IntervalStrategy::no), "greedy needs evaluations"));
  CHECK(contains(check("mode=max", false), "mode max contradicts greater_is_better false"));
  CHECK(check("mode=min") == "");
  CHECK(contains(check("mode=max"),
                 "mode max contradicts metric_for_best_model loss, which should fall"));
  CHECK(contains(check("factor=1"), "factor: got '1', expected a number in (0, 1)"));
  CHECK(contains(check("factor=0"), "factor: got '0', expected a number in (0, 1)"));
  CHECK(contains(check("threshold_mode=both"), "expected one of rel, abs"));
  CHECK(contains(check("window_size=0"), "a whole number of at least 1"));
  TrainingArguments plateau{.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau,
                            .lr_scheduler_kwargs = {{"max_lr", 1}},
                            .eval_strategy = IntervalStrategy::epoch};
  CHECK(contains(error_of([&] { validate(plateau); }).text, "unknown key max_lr"));
  // This scheduler only multiplies by the factor, so 0 is valid, as in PyTorch.
  plateau.lr_scheduler_kwargs = {{"factor", 0}};
  CHECK_NOTHROW(validate(plateau));
  plateau.lr_scheduler_kwargs = {{"factor", 1}};
  CHECK(contains(error_of([&] { validate(plateau); }).text, "expected a number in [0, 1)"));
  plateau.lr_scheduler_kwargs = {{"mode", "max"}};
  plateau.metric_for_best_model = "accuracy";
  CHECK_NOTHROW(resolved(resolved(plateau)));
  plateau.lr_scheduler_kwargs = {{"mode", "min"}};
  CHECK(contains(error_of([&] { resolved(plateau); }).text,
                 "mode min contradicts metric_for_best_model accuracy, which should rise"));
  plateau.greater_is_better = false;
  CHECK_NOTHROW(resolved(resolved(plateau)));
}

}  // namespace options_training_rules_test
