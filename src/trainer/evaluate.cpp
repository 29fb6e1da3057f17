// Trainer::evaluate and Trainer::predict: the scores of a pass over data.
#include <chrono>
#include <cmath>

#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/process/once.h"
#include "models/losses.h"
#include "trainer/agreement.h"
#include "trainer/eval_prediction.h"
#include "trainer/evaluation.h"

namespace hasten {
namespace {

double rounded(double value, int decimals) {
  const double factor = std::pow(10.0, decimals);
  return std::round(value * factor) / factor;
}

// Adds the scores under the prefix. A name that has the prefix already stays as it is.
void add_scores(Metrics& metrics, const Metrics& scores, const std::string& prefix) {
  for (const auto& [name, value] : scores)
    metrics[starts_with(name, prefix + "_") ? name : prefix + "_" + name] = value;
}

}  // namespace

Metrics speed_metrics(const std::string& prefix, double seconds, double samples, double steps) {
  Metrics out = {{prefix + "_runtime", rounded(seconds, 4)}};
  if (seconds > 0) {
    out[prefix + "_samples_per_second"] = rounded(samples / seconds, 3);
    out[prefix + "_steps_per_second"] = rounded(steps / seconds, 3);
  }
  return out;
}

void Trainer::Impl::add_to_metric(EvalMetric& metric, const EvalPrediction& rows) const {
  const std::vector<EvalMetric*> members = metric.members();
  for (EvalMetric* const each : members) add_to_metric(*each, rows);
  if (!members.empty()) return;
  EvalPrediction given = rows;
  if (metric.needs_aligned_labels() && given.label_ids.defined() && shifts_labels(given.label_ids))
    given.label_ids = shifted_labels(given.label_ids);
  add_rows(metric, given);
}

Metrics Trainer::Impl::computed_metrics() const {
  EvalMetric& metric = *parts.compute_metrics;
  if (!is_elastic()) sum_in_place(group(), metric.counts());
  Metrics scores;
  once(group(), true, [&] { scores = metric.compute(); });
  return scores;
}

std::optional<Metrics> Trainer::Impl::evaluate(const TrainerDataset& dataset,
                                               const std::string& prefix,
                                               const Trainer::IgnoreKeys& ignored,
                                               const Signal& signal) {
  if (!dataset)
    throw UsageError("trainer.no-eval-data",
                     {.what = "evaluate()",
                      .got = "no evaluation data",
                      .hint = "pass eval_dataset to the Trainer, or a dataset to evaluate()"});
  MemoryTracker::StageScope stage(memory, MemoryTracker::Stage::eval);
  const auto start = std::chrono::steady_clock::now();
  Evaluation pass(*this, dataset, ignored, signal);
  const auto totals = pass.run(pass.metric_handlers());
  if (!totals) return std::nullopt;
  Metrics metrics;
  if (totals->loss) metrics[prefix + "_loss"] = *totals->loss;
  if (parts.compute_metrics && !args.prediction_loss_only && totals->labelled_rows > 0)
    add_scores(metrics, computed_metrics(), prefix);
  metrics.merge(speed_metrics(prefix, seconds_since(start), totals->rows, totals->batches));
  broadcast_metrics(group(), metrics);
  once(group(), true, [&] {
    trainer.log(metrics);
    metrics["epoch"] = state.epoch;
    notify_callbacks(&TrainerCallback::on_evaluate, metrics);
  });
  stage.stop(metrics);
  return metrics;
}

PredictionOutput Trainer::Impl::predict(const TrainerDataset& dataset, const std::string& prefix,
                                        const Trainer::IgnoreKeys& ignored) {
  if (!dataset)
    throw UsageError("trainer.no-eval-data",
                     {.what = "predict()", .got = "no data", .hint = "pass a dataset"});
  MemoryTracker::StageScope stage(memory, MemoryTracker::Stage::test);
  const auto start = std::chrono::steady_clock::now();
  PredictedRows rows(args.eval_accumulation_steps);
  Evaluation::Handlers handlers;
  if (!args.prediction_loss_only) {
    handlers.use = [&](const EvalPrediction& batch) { rows.add(batch); };
    if (group().size() > 1) {
      handlers.gather = [&](const EvalPrediction& batch) {
        return std::vector{gather_predictions(accelerator, batch)};
      };
    }
  }
  const Evaluation::Totals totals =
      Evaluation(*this, dataset, ignored, Impl::no_signal).run(handlers).value();
  EvalPrediction all = rows.take();
  PredictionOutput out;
  if (totals.loss) out.metrics[prefix + "_loss"] = *totals.loss;
  once(group(), true, [&] { add_scores(out.metrics, scores_of(all), prefix); });
  out.predictions = all.predictions;
  out.label_ids = all.labels.empty() ? all.label_ids : all.labels.at(args.label_names.front());
  out.other_predictions = std::move(all.other_predictions);
  out.labels = std::move(all.labels);
  out.metrics.merge(speed_metrics(prefix, seconds_since(start), totals.rows, totals.batches));
  broadcast_metrics(group(), out.metrics);
  once(group(), true, [&] { notify_callbacks(&TrainerCallback::on_predict, out.metrics); });
  stage.stop(out.metrics);
  return out;
}

Metrics Trainer::Impl::scores_of(const EvalPrediction& all) const {
  if (!parts.compute_metrics || !has_labels(all)) return {};
  if (!has_outputs(all)) throw_no_logits("compute_metrics");
  EvalMetric& metric = *parts.compute_metrics;
  metric.reset();
  add_to_metric(metric, all);
  return metric.compute();
}

Metrics Trainer::evaluate(const std::string& prefix, const IgnoreKeys& ignored) {
  return evaluate(impl_->parts.eval_dataset, prefix, ignored);
}

Metrics Trainer::evaluate(const TrainerDataset& dataset, const std::string& prefix,
                          const IgnoreKeys& ignored) {
  return impl_->evaluate(dataset, prefix, ignored, Impl::no_signal).value();
}

PredictionOutput Trainer::predict(const TrainerDataset& dataset, const std::string& prefix,
                                  const IgnoreKeys& ignored) {
  return impl_->predict(dataset, prefix, ignored);
}

}  // namespace hasten
