// Checks training arguments that are each in range but contradict each other or cannot mean what
// was intended, and the keys of their maps.
#include "options/training_rules.h"

#include <algorithm>
#include <cmath>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten::config {
namespace {

const std::vector<std::string> kShapes = {"linear", "cosine", "1-sqrt"};
const std::vector<std::string> kBooleans = {"true", "false"};
constexpr std::string_view kCyclesHelp =
    "Set the number of cosine waves; with 0.5 the rate falls once, from the peak to the end.";

constexpr std::string_view kRecomputation = "activation_checkpointing";
constexpr std::string_view kEpsHelp = "Add this number to the denominator of the update.";
constexpr std::string_view kWeightHelp =
    "Weight step k in the mean of the weights by k to this power.";
constexpr std::string_view kWeightPowerHelp =
    "Weight a step in the mean by the highest rate so far to this power.";
constexpr std::string_view kDecoupledHelp =
    "Apply weight decay to the parameter, not to the gradient.";
constexpr std::string_view kEmbeddingBitsHelp =
    "Keep the states of embedding tables in this many bits.";
constexpr std::string_view kSmallStatesHelp =
    "Keep the states of parameters with fewer elements in float.";

// A number below 1 that is at least 0, or above it.
KwargRule share(std::string_view owner, std::string_view name, std::string_view default_text,
                std::string_view help, bool above = false) {
  KwargRule rule{owner, name, default_text, help};
  rule.below = 1;
  rule.above = above;
  return rule;
}

const KwargRule* find_rule(const std::vector<KwargRule>& rules, std::string_view owner,
                           std::string_view name) {
  for (const KwargRule& rule : rules) {
    if (rule.owner == owner && rule.name == name) return &rule;
  }
  return nullptr;
}

std::vector<std::string> keys_of(const std::vector<KwargRule>& rules, std::string_view owner) {
  std::vector<std::string> keys;
  for (const KwargRule& rule : rules) {
    if (rule.owner == owner) keys.emplace_back(rule.name);
  }
  return keys;
}

[[noreturn]] void throw_unknown_key(const std::string& option, std::string_view owner,
                                    const std::string& key, const std::vector<std::string>& keys) {
  const std::string takes =
      std::string(owner) + (keys.empty() ? " takes none" : " takes " + join(keys, ", "));
  throw ConfigError("config.unknown-key", {.what = option + ": unknown key " + key,
                                           .hint = did_you_mean(nearest(key, keys), takes)});
}

std::string expected_by(const KwargRule& rule) {
  if (!rule.words.empty()) return "one of " + join(rule.words, ", ");
  if (rule.below) {
    return str("a number in ", rule.above ? '(' : '[', rule.least, ", ", *rule.below, ')');
  }
  if (rule.above) return "a number above " + str(rule.least);
  return (rule.whole ? "a whole number of at least " : "a number of at least ") + str(rule.least);
}

bool allowed(const KwargRule& rule, const KwargValue& value) {
  if (rule.is_text) return true;
  if (!rule.words.empty()) {
    return std::find(rule.words.begin(), rule.words.end(), lower(value.text())) != rule.words.end();
  }
  if (!value.is_number() || value.number() < rule.least) return false;
  if (rule.above && value.number() == rule.least) return false;
  if (rule.below && value.number() >= *rule.below) return false;
  return !rule.whole || value.number() == std::floor(value.number());
}

void check_kwargs(const std::string& option, std::string_view owner, const Kwargs& kwargs,
                  const std::vector<KwargRule>& rules) {
  for (const auto& [key, value] : kwargs.items()) {
    const KwargRule* rule = find_rule(rules, owner, key);
    if (!rule) throw_unknown_key(option, owner, key, keys_of(rules, owner));
    if (allowed(*rule, value)) continue;
    throw ConfigError("config.out-of-range", {.what = option + ": " + key,
                                              .got = "'" + value.text() + "'",
                                              .expected = expected_by(*rule)});
  }
  for (const KwargRule& rule : rules) {
    if (rule.owner != owner || rule.default_text != "required" ||
        kwargs.has(std::string(rule.name)))
      continue;
    throw ConfigError("config.missing",
                      {.what = std::string(owner) + " needs " + std::string(rule.name),
                       .hint = "set --" + option + " " + std::string(rule.name) + "=..."});
  }
}

void check_one_floor(std::string_view owner, const Kwargs& kwargs) {
  const bool rate = kwargs.has("min_lr"), share = kwargs.has("min_lr_rate");
  if (rate != share) return;
  const std::string what =
      std::string(owner) +
      (rate ? " takes one of min_lr and min_lr_rate, not both" : " needs min_lr or min_lr_rate");
  throw_conflict(what, "use --lr_scheduler_kwargs min_lr_rate=0.1");
}

void check_evaluated_schedule(const TrainingArguments& arguments) {
  const std::string owner(name_of(arguments.lr_scheduler_type));
  const Kwargs& kwargs = arguments.lr_scheduler_kwargs;
  if (arguments.eval_strategy == IntervalStrategy::no) {
    throw_conflict(owner + " needs evaluations, which it follows: eval_strategy is no",
                   "use --eval_strategy epoch");
  }
  const std::string mode = lower(kwargs.text("mode", "")),
                    better = arguments.greater_is_better.value_or(mode == "max") ? "max" : "min";
  if (!mode.empty() && mode != better) {
    throw_conflict(owner + ": mode " + mode + " contradicts greater_is_better " +
                       (better == "max" ? "true" : "false"),
                   "remove mode, which follows greater_is_better");
  }
}

void check_schedule_kwargs(const TrainingArguments& arguments) {
  const std::string_view owner = name_of(arguments.lr_scheduler_type);
  const Kwargs& kwargs = arguments.lr_scheduler_kwargs;
  check_kwargs("lr_scheduler_kwargs", owner, kwargs, schedule_rules());
  switch (arguments.lr_scheduler_type) {
    case SchedulerType::cosine_with_min_lr:
    case SchedulerType::cosine_warmup_with_min_lr:
      return check_one_floor(owner, kwargs);
    case SchedulerType::polynomial:
      if (kwargs.number("lr_end", 1e-7) < arguments.learning_rate) return;
      throw_conflict("polynomial: lr_end " + str(kwargs.number("lr_end", 1e-7)) +
                         " is not below learning_rate " + str(arguments.learning_rate),
                     "use --lr_scheduler_kwargs lr_end=0");
      break;
    case SchedulerType::reduce_lr_on_plateau:
    case SchedulerType::greedy:
      return check_evaluated_schedule(arguments);
    default:
      return;
  }
}

// LBFGS has one rate for all parameters, and evaluates the loss of a step several times.
void check_lbfgs(const TrainingArguments& arguments) {
  if (arguments.weight_decay != 0)
    throw_conflict("weight_decay is " + str(arguments.weight_decay) + ", and lbfgs has none",
                   "use --weight_decay 0");
  if (arguments.gradient_accumulation_steps > 1) {
    throw_conflict("gradient_accumulation_steps is " + str(arguments.gradient_accumulation_steps) +
                       ", and lbfgs computes the loss of a step several times",
                   "use a larger --per_device_train_batch_size");
  }
}

void check_optimizer_args(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.optim_args;
  check_kwargs("optim_args", name_of(arguments.optim), kwargs, optimizer_rules());
  if (kwargs.has("max_lr") && !kwargs.flag("decouple_lr", false)) {
    throw_conflict("stable_adamw: max_lr has no effect without decouple_lr",
                   "use --optim_args decouple_lr=true,max_lr=...");
  }
  if (arguments.optim == OptimizerName::lbfgs) return check_lbfgs(arguments);
  if (arguments.optim != OptimizerName::sgd || !kwargs.flag("nesterov", false)) return;
  if (kwargs.number("momentum", 0) > 0 && kwargs.number("dampening", 0) == 0) return;
  throw_conflict("sgd: nesterov needs a momentum above 0 and no dampening",
                 "use --optim_args momentum=0.9,nesterov=true");
}

void check_recomputation(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.activation_checkpointing_kwargs;
  check_kwargs("activation_checkpointing_kwargs", kRecomputation, kwargs, recomputation_rules());
  if (kwargs.empty() || arguments.activation_checkpointing) return;
  throw_conflict("activation_checkpointing_kwargs has no effect: activation_checkpointing is false",
                 "use --activation_checkpointing");
}

[[noreturn]] void throw_out_of_range(const std::string& what, const std::string& got,
                                     const std::string& expected) {
  throw ConfigError("config.out-of-range", {.what = what, .got = got, .expected = expected});
}

// From 1 on, steps are whole; below 1 they are a share of all steps. 0 steps would never be due.
void check_steps(const char* name, double steps) {
  if (steps > 0 && (steps < 1 || steps == std::floor(steps))) return;
  throw_out_of_range(name, str(steps),
                     "a whole number of at least 1, or a share of all steps in (0, 1)");
}

double eval_steps(const TrainingArguments& arguments) {
  return arguments.eval_steps.value_or(0) == 0 ? arguments.logging_steps : *arguments.eval_steps;
}

void check_intervals(const TrainingArguments& arguments) {
  if (arguments.logging_strategy == IntervalStrategy::steps)
    check_steps("logging_steps", arguments.logging_steps);
  if (arguments.save_strategy == SaveStrategy::steps)
    check_steps("save_steps", arguments.save_steps);
  if (arguments.eval_strategy == IntervalStrategy::steps) {
    check_steps(arguments.eval_steps.value_or(0) == 0 ? "logging_steps, the default of eval_steps"
                                                      : "eval_steps",
                eval_steps(arguments));
  }
  if (arguments.warmup_steps >= 1 && arguments.warmup_steps != std::floor(arguments.warmup_steps)) {
    throw_out_of_range("warmup_steps", str(arguments.warmup_steps),
                       "a whole number, or a share of all steps in [0, 1)");
  }
}

void check_duration(const TrainingArguments& arguments) {
  if (arguments.max_steps > 0 || arguments.num_train_epochs > 0) return;
  throw_conflict("nothing to train: max_steps is " + str(arguments.max_steps) +
                     " and num_train_epochs is " + str(arguments.num_train_epochs),
                 "set one of them above 0");
}

// Only AdamW rounds its updates so that small ones do not vanish in bfloat16.
void check_weights_dtype(const TrainingArguments& arguments) {
  if (arguments.weights_dtype == WeightsType::float32) return;
  const std::string what = str("weights_dtype ", name_of(arguments.weights_dtype));
  if (arguments.optim != OptimizerName::adamw_torch &&
      arguments.optim != OptimizerName::adamw_torch_fused)
    throw_conflict(str(what, " and optim ", name_of(arguments.optim)),
                   "use --optim adamw_torch, which rounds its updates stochastically");
  if (arguments.fp16)
    throw_conflict(what + " and fp16, which needs weights in float32", "leave out --fp16");
}

void check_precision(const TrainingArguments& arguments) {
  if (arguments.bf16 && arguments.fp16) throw_conflict("bf16 and fp16 are both set", "keep bf16");
  if (arguments.bf16_full_eval && arguments.fp16_full_eval) {
    throw_conflict("bf16_full_eval and fp16_full_eval are both set", "keep bf16_full_eval");
  }
  if (arguments.fp16 && arguments.optim == OptimizerName::lbfgs) {
    throw_conflict("fp16 and optim lbfgs, which computes the loss of a step several times",
                   "use --bf16");
  }
  check_weights_dtype(arguments);
}

// A checkpoint can be the best one only if it was evaluated, so every save must coincide with an
// evaluation.
void check_saves_meet_evaluations(const TrainingArguments& arguments) {
  if (arguments.save_strategy == SaveStrategy::best) return;
  const auto save = name_of(arguments.save_strategy), eval = name_of(arguments.eval_strategy);
  if (save != eval) {
    throw_conflict(
        "load_best_model_at_end needs save_strategy and eval_strategy to be equal: they are " +
            std::string(save) + " and " + std::string(eval),
        "use --save_strategy " + std::string(eval));
  }
  if (arguments.eval_strategy != IntervalStrategy::steps) return;
  const double every = eval_steps(arguments), multiple = arguments.save_steps / every;
  if ((arguments.save_steps < 1) != (every < 1)) {
    throw_conflict(
        "load_best_model_at_end needs save_steps and eval_steps to be both steps or both shares: "
        "they are " +
            str(arguments.save_steps) + " and " + str(every),
        "use --save_steps " + str(every));
  }
  // Shares are decimal fractions, so their quotient is whole only up to rounding.
  if (multiple >= 1 && std::fabs(multiple - std::round(multiple)) < 1e-9) return;
  throw_conflict(
      "load_best_model_at_end needs save_steps to be a multiple of eval_steps: they are " +
          str(arguments.save_steps) + " and " + str(every),
      "use --save_steps " + str(every * std::max(1.0, std::round(multiple))));
}

void check_best(const TrainingArguments& arguments) {
  const bool best = arguments.save_strategy == SaveStrategy::best;
  if (!best && !arguments.load_best_model_at_end) return;
  const std::string who = best ? "save_strategy best" : "load_best_model_at_end";
  if (arguments.eval_strategy == IntervalStrategy::no) {
    throw_conflict(who + " needs evaluations: eval_strategy is no",
                   "use --eval_strategy epoch --save_strategy epoch");
  }
  if (best && !arguments.load_best_model_at_end && arguments.metric_for_best_model.empty()) {
    throw_conflict("save_strategy best needs metric_for_best_model",
                   "use --metric_for_best_model loss");
  }
  if (arguments.load_best_model_at_end) check_saves_meet_evaluations(arguments);
  if (arguments.prediction_loss_only && !arguments.metric_for_best_model.empty() &&
      !ends_with(arguments.metric_for_best_model, "loss")) {
    throw_conflict("metric_for_best_model " + arguments.metric_for_best_model +
                       " is never computed with prediction_loss_only",
                   "use --metric_for_best_model loss, or remove prediction_loss_only");
  }
}

void check_loading(const TrainingArguments& arguments) {
  if (arguments.dataloader_num_workers > 0) return;
  if (arguments.dataloader_prefetch_factor) {
    throw_conflict("dataloader_prefetch_factor needs workers: dataloader_num_workers is 0",
                   "use --dataloader_num_workers 1");
  }
}

void check_anatomy(const TrainingArguments& arguments) {
  if (arguments.anatomy.empty() || arguments.anatomy == "text" ||
      ends_with(arguments.anatomy, ".json") || ends_with(arguments.anatomy, ".html"))
    return;
  throw_out_of_range("anatomy", "'" + arguments.anatomy + "'",
                     "text, or a file ending in .json or .html");
}

void check_trackers(const TrainingArguments& arguments) {
  const auto& names = arguments.report_to;
  if (names.size() > 1 && std::find(names.begin(), names.end(), "none") != names.end())
    throw_conflict("report_to has none beside other trackers", "remove none");
}

void check_output(const TrainingArguments& arguments) {
  if (arguments.output_dir.empty()) throw_out_of_range("output_dir", "''", "a folder");
  const std::string resume = lower(arguments.resume_from_checkpoint);
  if (arguments.overwrite_output_dir && !resume.empty() && resume != "false") {
    throw_conflict("overwrite_output_dir starts over and resume_from_checkpoint resumes",
                   "remove one of them");
  }
}

// What depends on the number of processes is refused.
void check_elastic_ranks(const TrainingArguments& arguments) {
  const std::int64_t ranks = arguments.elastic_ranks;
  if (ranks <= 0) return;
  if ((ranks & (ranks - 1)) != 0)
    throw_out_of_range("elastic_ranks", str(ranks), "0, or a power of two");
  if (arguments.optim == OptimizerName::lbfgs) {
    throw_conflict("elastic_ranks and optim lbfgs, which computes the loss of a step several times",
                   "use --elastic_ranks 0");
  }
  if (arguments.auto_find_batch_size) {
    throw_conflict("elastic_ranks and auto_find_batch_size, which changes the rows of a rank",
                   "use --auto_find_batch_size false");
  }
}

// True for the optimizers that count the steps of a group of parameters together, or that compute the
// loss of a step several times.
bool steps_groups(OptimizerName optimizer) {
  switch (optimizer) {
    case OptimizerName::lbfgs:
    case OptimizerName::lamb:
    case OptimizerName::muon:
    case OptimizerName::schedule_free_adamw:
    case OptimizerName::schedule_free_sgd:
    case OptimizerName::stable_adamw:
      return true;
    default:
      return false;
  }
}

// The gradients of a step are never all there, and the weights change before the pass ends.
void check_step_in_backward(const TrainingArguments& arguments) {
  if (!arguments.step_in_backward) return;
  const auto refuse = [](bool is_set, const std::string& what, const std::string& hint) {
    if (is_set) throw_conflict("step_in_backward and " + what, hint);
  };
  refuse(arguments.max_grad_norm > 0,
         "max_grad_norm " + str(arguments.max_grad_norm) + ", which needs all gradients at once",
         "use --max_grad_norm 0");
  refuse(arguments.gradient_accumulation_steps > 1,
         "gradient_accumulation_steps " + str(arguments.gradient_accumulation_steps) +
             ", whose gradients wait for the last batch",
         "use --gradient_accumulation_steps 1");
  refuse(arguments.fp16, "fp16, which looks for overflow in all gradients before a step",
         "use --bf16");
  refuse(steps_groups(arguments.optim),
         "optim " + std::string(name_of(arguments.optim)) +
             ", whose step needs more than one parameter",
         "use --optim adamw_torch_fused, adamw_8bit or adafactor");
  refuse(arguments.elastic_ranks > 0, "elastic_ranks, which add up the gradients of virtual ranks",
         "use --elastic_ranks 0");
  refuse(arguments.stop_on_nonfinite_loss,
         "stop_on_nonfinite_loss, which ends the run before the step",
         "remove stop_on_nonfinite_loss");
  refuse(arguments.auto_find_batch_size,
         "auto_find_batch_size: a pass that runs out of memory has stepped some parameters",
         "use --auto_find_batch_size false");
}

void check_offloaded_states(const TrainingArguments& arguments) {
  if (arguments.offload_optimizer_states && arguments.optim == OptimizerName::lbfgs) {
    throw_conflict(
        "offload_optimizer_states and optim lbfgs, which keeps one state for all parameters",
        "use another optimizer, or remove offload_optimizer_states");
  }
}

struct EvaluatedDefaults {
  std::string_view factor, threshold, threshold_mode, min_lr;
};

// The keys that both schedules that follow a metric have.
std::vector<KwargRule> evaluated_rules(std::string_view owner, const EvaluatedDefaults& defaults) {
  return {
      {owner,
       "mode",
       "by greater_is_better",
       "Set whether a lower (min) or a higher (max) metric is better.",
       0,
       false,
       {"min", "max"}},
      share(owner, "factor", defaults.factor, "Multiply the rate by this number.", true),
      {owner, "patience", "10", "Wait for more than this many evaluations without an improvement.",
       0, true},
      {owner, "threshold", defaults.threshold, "Set the least improvement that counts."},
      {owner,
       "threshold_mode",
       defaults.threshold_mode,
       "Take threshold as a share of the best metric (rel) or as a difference (abs).",
       0,
       false,
       {"rel", "abs"}},
      {owner, "cooldown", "0", "Ignore this many evaluations after a reduction.", 0, true},
      {owner, "min_lr", defaults.min_lr, "Reduce the rate at most to this one."},
      {owner, "eps", "1e-8", "Leave out changes of the rate that are smaller."},
  };
}

std::vector<KwargRule> greedy_rules() {
  return {
      {"greedy", "max_lr", "1", "Increase the rate at most to this one."},
      {"greedy", "warmup", "0", "Ignore this many evaluations after an increase.", 0, true},
      {"greedy", "smooth", "false", "Follow the mean of the metric over a window.", 0, false,
       kBooleans},
      {"greedy", "window_size", "50", "Set the number of evaluations of the window.", 1, true},
      {"greedy", "reset_start", "500",
       "Start again with the first rate after this many reductions at min_lr.", 0, true},
  };
}

KwargRule state_rule(std::string_view owner) {
  return {owner,
          "state_dtype",
          "float32",
          "Keep the means of gradients and of their squares in this type.",
          0,
          false,
          {"float32", "bfloat16"}};
}

KwargRule rounding_rule(std::string_view owner) {
  return {
      owner,
      "stochastic_rounding",
      "true",
      "Round numbers that are kept in bfloat16 up or down at random, so that their mean is exact.",
      0,
      false,
      kBooleans};
}

}  // namespace

const std::vector<KwargRule>& schedule_rules() {
  static const std::vector<KwargRule> rules = {
      {"cosine", "num_cycles", "0.5", kCyclesHelp},
      {"cosine_with_restarts", "num_cycles", "1",
       "Let the rate fall from the peak to 0 this many times.", 1, true},
      {"polynomial", "lr_end", "1e-7",
       "Set the rate at the end, which must be below learning_rate."},
      {"polynomial", "power", "1",
       "Raise the remaining share of steps to this power; 1 is a straight line."},
      {"inverse_sqrt", "timescale", "warm-up steps, or 10000",
       "Set the time scale of the decay, in steps.", 1, true},
      {"cosine_with_min_lr", "num_cycles", "0.5", kCyclesHelp},
      {"cosine_with_min_lr", "min_lr", "required without min_lr_rate", "Set the rate at the end."},
      {"cosine_with_min_lr", "min_lr_rate", "required without min_lr",
       "Set the rate at the end, as a share of learning_rate."},
      {"cosine_warmup_with_min_lr", "num_cycles", "0.5", kCyclesHelp},
      {"cosine_warmup_with_min_lr", "min_lr", "required without min_lr_rate",
       "Set the rate at the end."},
      {"cosine_warmup_with_min_lr", "min_lr_rate", "required without min_lr",
       "Set the rate at the end, as a share of learning_rate."},
      {"cosine_warmup_with_min_lr", "warmup_lr_rate", "1 / warm-up steps",
       "Set the rate at the start, as a share of learning_rate."},
      {"warmup_stable_decay", "num_decay_steps", "required",
       "Decay the rate over this many steps at the end.", 0, true},
      {"warmup_stable_decay", "num_stable_steps", "the remaining steps",
       "Keep the peak rate for this many steps.", 0, true},
      {"warmup_stable_decay", "warmup_type", "linear", "Select the shape of the warm-up.", 0, false,
       kShapes},
      {"warmup_stable_decay", "decay_type", "cosine", "Select the shape of the decay.", 0, false,
       kShapes},
      {"warmup_stable_decay", "min_lr_ratio", "0",
       "Set the rate at both ends, as a share of learning_rate."},
      {"warmup_stable_decay", "num_cycles", "0.5", kCyclesHelp},
  };
  static const std::vector<KwargRule> all = [] {
    std::vector<KwargRule> joined = rules;
    for (const std::vector<KwargRule>& more :
         {evaluated_rules("reduce_lr_on_plateau", {"0.1", "1e-4", "rel", "0"}),
          evaluated_rules("greedy", {"0.95", "1e-6", "abs", "0.001"}), greedy_rules()})
      joined.insert(joined.end(), more.begin(), more.end());
    return joined;
  }();
  return all;
}

const std::vector<KwargRule>& optimizer_rules() {
  static const std::vector<KwargRule> rules = {
      {"sgd", "momentum", "0", "Keep this share of the last update."},
      {"sgd", "dampening", "0", "Leave this share of the gradient out of momentum."},
      {"sgd", "nesterov", "false",
       "Use Nesterov's momentum, which needs momentum and no dampening.", 0, false, kBooleans},
      {"adafactor", "scale_parameter", "false",
       "Make steps in proportion to the root mean square of each parameter.", 0, false, kBooleans},
      {"adafactor",
       "clip_threshold",
       "1",
       "Limit the root mean square of an update to this.",
       0,
       false,
       {},
       {},
       true},
      {"adafactor", "decay_rate", "-0.8",
       "Set the exponent of the step by which means of squares decay; at most 0.", -100},
      share("adafactor", "beta1", "no momentum", "Keep this share of the last update."),
      state_rule("adamw_torch"),
      rounding_rule("adamw_torch"),
      state_rule("adamw_torch_fused"),
      rounding_rule("adamw_torch_fused"),
      {"adagrad", "lr_decay", "0", "Divide the rate by 1 + this number times the step."},
      {"adagrad", "initial_accumulator_value", "0", "Start the sums of squares here."},
      {"adagrad", "eps", "1e-10", kEpsHelp},
      share("ademamix", "beta1", "adam_beta1", "Set the decay rate of the fast mean of gradients."),
      share("ademamix", "beta2", "adam_beta2",
            "Set the decay rate of the mean of squared gradients."),
      share("ademamix", "beta3", "0.9999", "Set the decay rate of the slow mean of gradients."),
      {"ademamix", "alpha", "5", "Set the weight of the slow mean."},
      {"ademamix", "eps", "adam_epsilon", kEpsHelp},
      {"ademamix", "t_alpha", "0", "Raise alpha to its value over this many steps.", 0, true},
      {"ademamix", "t_beta3", "0", "Raise beta3 to its value over this many steps.", 0, true},
      share("rmsprop", "alpha", "0.99", "Set the decay rate of the mean of squared gradients."),
      {"rmsprop", "eps", "1e-8", kEpsHelp},
      {"rmsprop", "momentum", "0", "Keep this share of the last update."},
      {"rmsprop", "centered", "false", "Divide by the deviation of the gradients from their mean.",
       0, false, kBooleans},
      {"schedule_free_adamw", "r", "0", kWeightHelp},
      {"schedule_free_adamw", "weight_lr_power", "2", kWeightPowerHelp},
      share("schedule_free_sgd", "momentum", "0.9",
            "Set the share of the mean in the weights to train.", true),
      {"schedule_free_sgd", "r", "0", kWeightHelp},
      {"schedule_free_sgd", "weight_lr_power", "2", kWeightPowerHelp},
      {"stable_adamw", "decouple_lr", "false",
       "Multiply weight_decay by the share of max_lr that the rate has, not by the rate.", 0, false,
       kBooleans},
      {"stable_adamw", "max_lr", "learning_rate", "Set the highest rate, for decouple_lr."},
      {"lamb", "bias_correction", "true", "Correct the means for their start at 0.", 0, false,
       kBooleans},
      {"lamb", "trust_clip", "false", "Limit the proportion of a step to 1.", 0, false, kBooleans},
      {"lamb", "always_adapt", "false", "Also adapt the steps of parameters that do not decay.", 0,
       false, kBooleans},
      {"lbfgs", "max_iter", "20", "Make at most this many iterations in a step.", 1, true},
      {"lbfgs", "max_eval", "1.25 max_iter", "Compute the loss at most this many times in a step.",
       1, true},
      {"lbfgs", "tolerance_grad", "1e-7", "End a step if no gradient is larger."},
      {"lbfgs", "tolerance_change", "1e-9", "End a step if loss and parameters change less."},
      {"lbfgs", "history_size", "100", "Keep this many earlier updates.", 1, true},
      {"lbfgs",
       "line_search_fn",
       "none",
       "Search the length of each update.",
       0,
       false,
       {"strong_wolfe"}},
      share("muon", "momentum", "0.95", "Keep this share of the mean of gradients."),
      {"muon", "nesterov", "true", "Use Nesterov's momentum.", 0, false, kBooleans},
      {"muon", "ns_steps", "5", "Make this many iterations of Newton and Schulz.", 0, true},
      {"muon",
       "adjust_lr_fn",
       "match_rms_adamw",
       "Make updates as large as AdamW's, or those of the original paper.",
       0,
       false,
       {"original", "match_rms_adamw"}},
      {"nadam", "momentum_decay", "0.004", "Set the decay rate of the momentum's schedule."},
      {"nadam", "decoupled_weight_decay", "false", kDecoupledHelp, 0, false, kBooleans},
      {"radam", "decoupled_weight_decay", "false", kDecoupledHelp, 0, false, kBooleans},
      {"adamw_8bit", "embedding_bits", "32", kEmbeddingBitsHelp, 0, false, {"8", "32"}},
      {"adamw_8bit", "min_8bit_size", "4096", kSmallStatesHelp, 0, true},
      {"lion_8bit", "embedding_bits", "32", kEmbeddingBitsHelp, 0, false, {"8", "32"}},
      {"lion_8bit", "min_8bit_size", "4096", kSmallStatesHelp, 0, true},
  };
  return rules;
}

const std::vector<KwargRule>& recomputation_rules() {
  static const std::vector<KwargRule> rules = [] {
    KwargRule modules{
        kRecomputation, "modules", "all layers",
        "Recompute only the layers, or the modules of an exported program, whose paths "
        "match one of these patterns, which colons separate."};
    modules.is_text = true;
    return std::vector<KwargRule>{
        {kRecomputation, "every_n_layers", "1",
         "Recompute each n-th layer, from the first on; the others keep their activations.", 1,
         true},
        {kRecomputation,
         "policy",
         "full",
         "Recompute everything, or keep the results of products, convolutions and attention.",
         0,
         false,
         {"full", "selective"}},
        modules,
        {kRecomputation, "offload", "false",
         "Keep the inputs of recomputed layers in host memory; not on the CPU.", 0, false,
         kBooleans},
        {kRecomputation, "preserve_rng_state", "true",
         "Draw the same random numbers again; false is for models without dropout.", 0, false,
         kBooleans},
        {kRecomputation, "use_reentrant", "false",
         "Has no effect: recomputation never runs a backward pass inside of another.", 0, false,
         kBooleans}};
  }();
  return rules;
}

void check_contradictions(const TrainingArguments& arguments) {
  check_anatomy(arguments);
  check_output(arguments);
  check_trackers(arguments);
  check_duration(arguments);
  check_precision(arguments);
  check_intervals(arguments);
  check_best(arguments);
  check_loading(arguments);
  check_elastic_ranks(arguments);
  check_step_in_backward(arguments);
  check_offloaded_states(arguments);
  check_schedule_kwargs(arguments);
  check_optimizer_args(arguments);
  check_recomputation(arguments);
}

std::string eval_metric_name(const std::string& name) {
  return starts_with(name, "eval_") ? name : "eval_" + name;
}

}  // namespace hasten::config
