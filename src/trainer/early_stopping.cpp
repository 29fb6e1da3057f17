#include <cmath>

#include "hasten/base/error.h"
#include "hasten/trainer/callback.h"

namespace hasten {

EarlyStoppingCallback::EarlyStoppingCallback(std::int64_t early_stopping_patience,
                                             double early_stopping_threshold)
    : patience_(early_stopping_patience), threshold_(early_stopping_threshold) {}

void EarlyStoppingCallback::on_train_begin(const TrainerEvent& event, TrainerControl&) {
  if (event.args.metric_for_best_model.empty() ||
      event.args.eval_strategy == IntervalStrategy::no) {
    throw UsageError("trainer.early-stopping",
                     {.what = "EarlyStoppingCallback",
                      .got = "a run without evaluations or without metric_for_best_model",
                      .hint = "set eval_strategy and metric_for_best_model"});
  }
}

void EarlyStoppingCallback::on_evaluate(const TrainerEvent& event, TrainerControl& control,
                                        const Metrics& metrics) {
  const std::string& name = event.args.metric_for_best_model;
  const auto found = metrics.find(name.rfind("eval_", 0) == 0 ? name : "eval_" + name);
  if (found == metrics.end()) return;
  const bool greater = event.args.greater_is_better.value_or(false);
  const bool improves = !event.state.best_metric ||
                        ((greater ? found->second > *event.state.best_metric
                                  : found->second < *event.state.best_metric) &&
                         std::fabs(found->second - *event.state.best_metric) > threshold_);
  // A metric that is not finite never becomes the best one.
  const bool better = improves && std::isfinite(found->second);
  counter_ = better ? 0 : counter_ + 1;
  if (counter_ >= patience_) control.should_training_stop = true;
}

std::map<std::string, double> EarlyStoppingCallback::attributes() const {
  return {{"early_stopping_patience_counter", static_cast<double>(counter_)}};
}

void EarlyStoppingCallback::restore(const std::map<std::string, double>& attributes) {
  const auto found = attributes.find("early_stopping_patience_counter");
  if (found != attributes.end()) counter_ = static_cast<std::int64_t>(found->second);
}

}  // namespace hasten
