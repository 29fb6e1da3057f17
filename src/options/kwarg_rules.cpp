#include "options/kwarg_rules.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::config {
namespace {

const std::vector<std::string> kShapes = {"linear", "cosine", "1-sqrt"};
const std::vector<std::string> kBooleans = {"true", "false"};
constexpr std::string_view kCyclesHelp =
    "Set the number of cosine waves; with 0.5 the rate falls once, from the peak to the end.";

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

// Returns the rule of a number below 1 that is at least 0 or, with `above`, more than 0.
KwargRule fraction_rule(std::string_view owner, std::string_view name,
                        std::string_view default_text, std::string_view help, bool above = false) {
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
  if (!rule.choices.empty()) return "one of " + join(rule.choices, ", ");
  if (rule.below) {
    return str("a number in ", rule.above ? '(' : '[', rule.minimum, ", ", *rule.below, ')');
  }
  if (rule.above) return "a number above " + str(rule.minimum);
  return (rule.whole ? "a whole number of at least " : "a number of at least ") + str(rule.minimum);
}

// Returns the choice that has the letters of the value in any case, or null if there is none.
const std::string* find_choice(const KwargRule& rule, const KwargValue& value) {
  const auto found = std::find(rule.choices.begin(), rule.choices.end(), lower(value.text()));
  return found == rule.choices.end() ? nullptr : &*found;
}

bool allowed(const KwargRule& rule, const KwargValue& value) {
  if (rule.is_text) return true;
  if (!rule.choices.empty()) return find_choice(rule, value) != nullptr;
  if (!value.is_number() || value.number() < rule.minimum) return false;
  if (rule.above && value.number() == rule.minimum) return false;
  if (rule.below && value.number() >= *rule.below) return false;
  return !rule.whole || value.number() == std::floor(value.number());
}

struct MetricScheduleDefaults {
  std::string_view factor, threshold, threshold_mode, min_lr;
  bool divides = false;  // The schedule also divides by the factor, which must not be 0.
};

// Returns the rules of the keys that both metric-driven schedules have.
std::vector<KwargRule> metric_schedule_rules(std::string_view owner,
                                             const MetricScheduleDefaults& defaults) {
  return {
      {owner,
       "mode",
       "by greater_is_better",
       "Set whether a lower (min) or a higher (max) metric is better.",
       0,
       false,
       {"min", "max"}},
      fraction_rule(owner, "factor", defaults.factor, "Multiply the rate by this number.",
                    defaults.divides),
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

KwargValue default_of(const std::vector<KwargRule>& rules, std::string_view owner,
                      std::string_view name) {
  const KwargRule* rule = find_rule(rules, owner, name);
  if (!rule) throw std::out_of_range(str(owner, " has no key ", name));
  return rule->default_text;
}

void normalize_choices(std::string_view owner, Kwargs& kwargs,
                       const std::vector<KwargRule>& rules) {
  for (const KwargRule& rule : rules) {
    const std::string name(rule.name);
    if (rule.owner != owner || !kwargs.has(name)) continue;
    if (const std::string* const choice = find_choice(rule, kwargs.items().at(name)))
      kwargs.set(name, *choice);
  }
}

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
         {metric_schedule_rules("reduce_lr_on_plateau", {"0.1", "1e-4", "rel", "0"}),
          metric_schedule_rules("greedy", {"0.95", "1e-6", "abs", "0.001", true}), greedy_rules()})
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
      fraction_rule("adafactor", "beta1", "no momentum", "Keep this share of the last update."),
      state_rule("adamw_torch"),
      rounding_rule("adamw_torch"),
      state_rule("adamw_torch_fused"),
      rounding_rule("adamw_torch_fused"),
      {"adagrad", "lr_decay", "0", "Divide the rate by 1 + this number times the step."},
      {"adagrad", "initial_accumulator_value", "0", "Start the sums of squares here."},
      {"adagrad", "eps", "1e-10", kEpsHelp},
      fraction_rule("ademamix", "beta1", "adam_beta1",
                    "Set the decay rate of the fast mean of gradients."),
      fraction_rule("ademamix", "beta2", "adam_beta2",
                    "Set the decay rate of the mean of squared gradients."),
      fraction_rule("ademamix", "beta3", "0.9999",
                    "Set the decay rate of the slow mean of gradients."),
      {"ademamix", "alpha", "5", "Set the weight of the slow mean."},
      {"ademamix", "eps", "adam_epsilon", kEpsHelp},
      {"ademamix", "t_alpha", "0", "Raise alpha to its value over this many steps.", 0, true},
      {"ademamix", "t_beta3", "0", "Raise beta3 to its value over this many steps.", 0, true},
      fraction_rule("rmsprop", "alpha", "0.99",
                    "Set the decay rate of the mean of squared gradients."),
      {"rmsprop", "eps", "1e-8", kEpsHelp},
      {"rmsprop", "momentum", "0", "Keep this share of the last update."},
      {"rmsprop", "centered", "false", "Divide by the deviation of the gradients from their mean.",
       0, false, kBooleans},
      {"schedule_free_adamw", "r", "0", kWeightHelp},
      {"schedule_free_adamw", "weight_lr_power", "2", kWeightPowerHelp},
      fraction_rule("schedule_free_sgd", "momentum", "0.9",
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
      fraction_rule("muon", "momentum", "0.95", "Keep this share of the mean of gradients."),
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

// Returns the rules of the keys of the Hugging Face Trainer's AcceleratorConfig.
const std::vector<KwargRule>& sharing_rules() {
  const auto rule = [](std::string_view name, std::string_view default_text, std::string_view help,
                       const std::vector<std::string>& choices) {
    return KwargRule{kSharing, name, default_text, help, 0, false, choices};
  };
  static const std::vector<KwargRule> rules = {
      rule("split_batches", "false",
           "Divide a batch of per_device_train_batch_size or per_device_eval_batch_size rows "
           "between the processes. Otherwise each process has batches of so many rows.",
           kBooleans),
      rule("dispatch_batches", "true for streams",
           "Read all batches in the main process, which sends each process its own. Otherwise each "
           "process reads its own rows, and a stream as a whole.",
           kBooleans),
      rule("even_batches", "true", "All processes have equally many batches.", {"true"}),
      rule("use_seedable_sampler", "true", "The order of the rows follows from the seed.",
           {"true"}),
      rule("non_blocking", "false", "Has no effect: copies of pinned memory never block.",
           kBooleans),
      rule("use_configured_state", "false", "The Trainer makes its own Accelerator.", {"false"})};
  return rules;
}

}  // namespace hasten::config
