#include "hasten/options/training_arguments.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/saturated.h"
#include "hasten/base/text.h"
#include "options/kwarg_rules.h"
#include "options/sources.h"
#include "options/training_rules.h"
#include "options/variable_of.h"

namespace hasten {
namespace config {
namespace {

// Turns the words that mean no checkpoint, in Python or C++, into an empty text, and the words that
// mean the newest checkpoint into "true".
std::string checkpoint(const std::string& text) {
  const std::string word = lower(text);
  if (word == "false" || word == "none") return "";
  return word == "true" ? word : text;
}

void normalize_kwargs(TrainingArguments& arguments) {
  normalize_choices(name_of(arguments.lr_scheduler_type), arguments.lr_scheduler_kwargs,
                    schedule_rules());
  normalize_choices(name_of(arguments.optim), arguments.optim_args, optimizer_rules());
  normalize_choices(kRecomputation, arguments.activation_checkpointing_kwargs,
                    recomputation_rules());
  normalize_choices(kSharing, arguments.accelerator_config, sharing_rules());
}

}  // namespace

std::vector<DerivedValue> derive(TrainingArguments& arguments) {
  std::vector<DerivedValue> derived;
  const Environment environment = whole_environment();
  arguments.output_dir = expand_home(environment, arguments.output_dir);
  arguments.logging_dir = expand_home(environment, arguments.logging_dir);
  arguments.resume_from_checkpoint = checkpoint(arguments.resume_from_checkpoint);
  normalize_kwargs(arguments);
  if (!arguments.do_eval && arguments.eval_strategy != IntervalStrategy::no) {
    arguments.do_eval = true;
    derived.push_back({"do_eval", "eval_strategy"});
  }
  if (arguments.eval_strategy == IntervalStrategy::steps && arguments.eval_steps.value_or(0) == 0) {
    arguments.eval_steps = arguments.logging_steps;
    derived.push_back({"eval_steps", "logging_steps"});
  }
  if (arguments.metric_for_best_model.empty() &&
      (arguments.load_best_model_at_end || follows_metric(arguments.lr_scheduler_type))) {
    arguments.metric_for_best_model = "loss";
    derived.push_back({"metric_for_best_model", arguments.load_best_model_at_end
                                                    ? "load_best_model_at_end"
                                                    : "lr_scheduler_type"});
  }
  if (!arguments.greater_is_better && !arguments.metric_for_best_model.empty()) {
    arguments.greater_is_better = !ends_with(arguments.metric_for_best_model, "loss");
    derived.push_back({"greater_is_better", "metric_for_best_model"});
  }
  return derived;
}

}  // namespace config

namespace {

using Json = nlohmann::ordered_json;

// Writes whole numbers without a fraction, as a person would.
Json number(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json object(const Kwargs& kwargs) {
  Json out = Json::object();
  for (const auto& [name, value] : kwargs.items())
    out[name] = value.is_number() ? number(value.number()) : Json(value.text());
  return out;
}

struct JsonWriter {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const { return number(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const std::vector<std::string>& value) const { return value; }
  Json operator()(const Kwargs& value) const { return object(value); }
};

bool is_empty(const config::Value& value) { return config::to_text(value) == "unset"; }

}  // namespace

void validate(const TrainingArguments& arguments) {
  TrainingArguments copy = arguments;
  config::OptionTable table;
  describe(table, copy);
  config::check_limits(table);
  // Runs before the check of the status, so that fp16 together with bf16 is reported as a
  // contradiction.
  config::check_contradictions(arguments);
  std::vector<std::string> notices;
  config::check_status(table, notices);
}

TrainingArguments resolved(TrainingArguments arguments) {
  validate(arguments);
  config::derive(arguments);
  return arguments;
}

bool follows_metric(SchedulerType type) {
  return type == SchedulerType::reduce_lr_on_plateau || type == SchedulerType::greedy;
}

std::int64_t absolute_steps(double steps_or_share, std::int64_t total) {
  if (steps_or_share >= 1) return saturated_count(steps_or_share);
  return saturated_count(std::ceil(static_cast<double>(total) * steps_or_share));
}

std::string to_json(const TrainingArguments& arguments) {
  TrainingArguments copy = arguments;
  config::OptionTable table;
  describe(table, copy);
  Json out = Json::object();
  for (const config::Option& option : table.options()) {
    if (!option.has_field) continue;
    const bool unset = is_empty(option.get()) && is_empty(option.default_value);
    out[option.name] = unset ? Json(nullptr) : std::visit(JsonWriter{}, option.get());
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainingArguments training_arguments_from_json(const std::string& json, const std::string& name) {
  TrainingArguments arguments;
  config::OptionTable table;
  describe(table, arguments);
  std::vector<std::string> notices;
  config::resolve(table, {config::read_json(json, name)}, notices);
  config::check_status(table, notices);
  return arguments;
}

}  // namespace hasten
