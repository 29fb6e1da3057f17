#include "options/kwargs_rules.h"

#include <algorithm>
#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/messages.h"

namespace hasten::config {
namespace {

const std::vector<std::string> kShapes = {"linear", "cosine", "1-sqrt"};
const std::vector<std::string> kBooleans = {"true", "false"};
constexpr std::string_view kCyclesHelp =
    "Set the number of cosine waves; with 0.5 the rate falls once, from the peak to the end.";

const KwargRule* find(const std::vector<KwargRule>& rules, std::string_view owner,
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
  const auto near = nearest(key, keys);
  const std::string takes =
      std::string(owner) + (keys.empty() ? " takes none" : " takes " + join(keys, ", "));
  throw ConfigError("config.unknown-key", {.what = option + ": unknown key " + key,
                                           .hint = near ? "did you mean " + *near + "?" : takes});
}

std::string expected(const KwargRule& rule) {
  if (!rule.words.empty()) return "one of " + join(rule.words, ", ");
  return (rule.whole ? "a whole number of at least " : "a number of at least ") + str(rule.least);
}

bool allowed(const KwargRule& rule, const KwargValue& value) {
  if (!rule.words.empty()) {
    return std::find(rule.words.begin(), rule.words.end(), lower(value.text())) != rule.words.end();
  }
  if (!value.is_number() || value.number() < rule.least) return false;
  return !rule.whole || value.number() == std::floor(value.number());
}

void check(const std::string& option, std::string_view owner, const Kwargs& kwargs,
           const std::vector<KwargRule>& rules) {
  for (const auto& [key, value] : kwargs.items()) {
    const KwargRule* rule = find(rules, owner, key);
    if (!rule) throw_unknown_key(option, owner, key, keys_of(rules, owner));
    if (allowed(*rule, value)) continue;
    throw ConfigError("config.out-of-range", {.what = option + ": " + key,
                                              .got = "'" + value.text() + "'",
                                              .expected = expected(*rule)});
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
  return rules;
}

const std::vector<KwargRule>& optimizer_rules() {
  static const std::vector<KwargRule> rules = {
      {"sgd", "momentum", "0", "Keep this share of the last update."},
      {"sgd", "dampening", "0", "Leave this share of the gradient out of momentum."},
      {"sgd", "nesterov", "false",
       "Use Nesterov's momentum, which needs momentum and no dampening.", 0, false, kBooleans},
  };
  return rules;
}

void check_schedule_kwargs(const TrainingArguments& arguments) {
  const std::string_view owner = name_of(arguments.lr_scheduler_type);
  const Kwargs& kwargs = arguments.lr_scheduler_kwargs;
  check("lr_scheduler_kwargs", owner, kwargs, schedule_rules());
  switch (arguments.lr_scheduler_type) {
    case SchedulerType::cosine_with_min_lr:
    case SchedulerType::cosine_warmup_with_min_lr:
      return check_one_floor(owner, kwargs);
    case SchedulerType::polynomial:
      if (kwargs.number("lr_end", 1e-7) < arguments.learning_rate) return;
      throw_conflict("polynomial: lr_end " + str(kwargs.number("lr_end", 1e-7)) +
                         " is not below learning_rate " + str(arguments.learning_rate),
                     "use --lr_scheduler_kwargs lr_end=0");
    default:
      return;
  }
}

void check_optimizer_args(const TrainingArguments& arguments) {
  const Kwargs& kwargs = arguments.optim_args;
  check("optim_args", name_of(arguments.optim), kwargs, optimizer_rules());
  if (!kwargs.flag("nesterov", false)) return;
  if (kwargs.number("momentum", 0) > 0 && kwargs.number("dampening", 0) == 0) return;
  throw_conflict("sgd: nesterov needs a momentum above 0 and no dampening",
                 "use --optim_args momentum=0.9,nesterov=true");
}

}  // namespace hasten::config
