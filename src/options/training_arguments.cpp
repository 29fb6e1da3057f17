#include "hasten/options/training_arguments.h"

#include <cmath>
#include <cstdlib>

#include "hasten/base/text.h"
#include "options/derive.h"
#include "options/sources.h"

namespace hasten {
namespace config {
namespace {

std::string home_expanded(const std::string& path) {
  const char* home = std::getenv("HOME");
  const bool ours = path == "~" || starts_with(path, "~/");
  return ours && home && *home ? home + path.substr(1) : path;
}

// Turns the words for no checkpoint, as Python or C++ writes them, into an empty text, and those
// for the newest one into "true".
std::string checkpoint(const std::string& text) {
  const std::string word = lower(text);
  if (word == "false" || word == "none") return "";
  return word == "true" ? word : text;
}

}  // namespace

std::vector<Derived> derive(TrainingArguments& arguments) {
  std::vector<Derived> derived;
  arguments.output_dir = home_expanded(arguments.output_dir);
  arguments.logging_dir = home_expanded(arguments.logging_dir);
  arguments.resume_from_checkpoint = checkpoint(arguments.resume_from_checkpoint);
  if (!arguments.do_eval && arguments.eval_strategy != IntervalStrategy::no) {
    arguments.do_eval = true;
    derived.push_back({"do_eval", "eval_strategy"});
  }
  if (arguments.eval_strategy == IntervalStrategy::steps && arguments.eval_steps.value_or(0) == 0) {
    arguments.eval_steps = arguments.logging_steps;
    derived.push_back({"eval_steps", "logging_steps"});
  }
  if (arguments.load_best_model_at_end && arguments.metric_for_best_model.empty()) {
    arguments.metric_for_best_model = "loss";
    derived.push_back({"metric_for_best_model", "load_best_model_at_end"});
  }
  if (!arguments.greater_is_better && !arguments.metric_for_best_model.empty()) {
    arguments.greater_is_better = !ends_with(arguments.metric_for_best_model, "loss");
    derived.push_back({"greater_is_better", "metric_for_best_model"});
  }
  return derived;
}

}  // namespace config

void validate(const TrainingArguments& arguments) {
  TrainingArguments copy = arguments;
  config::OptionTable table;
  describe(table, copy);
  config::check_limits(table);
  // Checked before the status, so that fp16 together with bf16 is reported as a contradiction.
  config::check_contradictions(arguments);
  std::vector<std::string> notices;
  config::check_status(table, notices);
}

TrainingArguments resolved(TrainingArguments arguments) {
  validate(arguments);
  config::derive(arguments);
  return arguments;
}

std::int64_t absolute_steps(double steps_or_share, std::int64_t total) {
  if (steps_or_share >= 1) return static_cast<std::int64_t>(steps_or_share);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(total) * steps_or_share));
}

}  // namespace hasten
