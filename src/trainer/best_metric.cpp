#include "trainer/best_metric.h"

#include <cmath>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

double metric_for_best(const TrainingArguments& args, const Metrics& metrics) {
  const std::string name = starts_with(args.metric_for_best_model, "eval_")
                               ? args.metric_for_best_model
                               : "eval_" + args.metric_for_best_model;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    std::vector<std::string> names;
    for (const auto& [key, value] : metrics) names.push_back(key);
    throw ConfigError(
        "trainer.unknown-metric",
        {.what = "metric_for_best_model", .got = name, .expected = "one of " + join(names, ", ")});
  }
  return found->second;
}

bool note_best(const TrainingArguments& args, const Metrics& metrics, TrainerState& state) {
  if (args.metric_for_best_model.empty()) return false;
  const double metric = metric_for_best(args, metrics);
  if (!std::isfinite(metric)) return false;
  const bool greater = args.greater_is_better.value_or(false);
  if (state.best_metric && !(greater ? metric > *state.best_metric : metric < *state.best_metric))
    return false;
  state.best_metric = metric;
  state.best_global_step = state.global_step;
  return true;
}

}  // namespace hasten
