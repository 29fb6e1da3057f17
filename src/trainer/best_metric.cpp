#include "trainer/best_metric.h"

#include <string>
#include <vector>

#include "checkpoint/best_checkpoint.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/training_rules.h"

namespace hasten {

void throw_unknown_metric(const std::string& what, const std::string& name,
                          const std::vector<std::string>& known) {
  throw ConfigError("trainer.unknown-metric",
                    {.what = what, .got = name, .expected = "one of " + join(known, ", ")});
}

double find_metric(const Metrics& metrics, const std::string& name, const std::string& what) {
  const auto found = metrics.find(name);
  if (found != metrics.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, value] : metrics) names.push_back(key);
  throw_unknown_metric(what, name, names);
}

double metric_for_best(const TrainingArguments& args, const Metrics& metrics) {
  return find_metric(metrics, config::eval_metric_name(args.metric_for_best_model),
                     "metric_for_best_model");
}

bool update_best_metric(const TrainingArguments& args, const Metrics& metrics,
                        TrainerState& state) {
  if (args.metric_for_best_model.empty()) return false;
  const double metric = metric_for_best(args, metrics);
  if (!is_better(metric, state.best_metric, args.greater_is_better.value_or(false))) return false;
  state.best_metric = metric;
  state.best_global_step = state.global_step;
  return true;
}

}  // namespace hasten
