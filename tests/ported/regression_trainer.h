// The Trainer of the regression problem, like get_regression_trainer of transformers'
// tests/trainer.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "hasten/metrics/metric.h"
#include "hasten/trainer/trainer.h"
#include "ported/regression.h"
#include "unit/trainer/tiny.h"

namespace hasten::ported {

using tiny_runs::Folder;
using tiny_runs::logged;

// The defaults of the Hugging Face Trainer: 3 epochs of batches of 8, so 24 steps with 64 rows.
inline TrainingArguments arguments_of(const Folder& folder) {
  TrainingArguments args;
  args.output_dir = folder.path.string();
  args.use_cpu = true;
  return args;
}

inline ColumnDataset columns(std::int64_t length = 64) {
  return regression_rows(length, 42, "input_x", "labels");
}

inline ModelOutput regression_loss(RegressionModel& net, const TensorDict& batch) {
  const at::Tensor y = net.forward(batch.at("input_x"));
  return {.loss = mse(y, batch.at("labels")), .logits = y};
}

inline TrainerParts parts_of(std::int64_t train_length = 64, std::int64_t eval_length = 64) {
  return {.train_dataset = TrainerDataset(columns(train_length)),
          .eval_dataset = TrainerDataset(columns(eval_length)),
          .compute_loss = regression_loss,
          .log_sink = [](std::string_view) {}};
}

inline std::shared_ptr<RegressionModel> line(double a = 0, double b = 0) {
  return std::make_shared<RegressionModel>(a, b);
}

// Returns the share of predictions that differ by at most 0.25 from their label.
inline double almost_accuracy(const at::Tensor& predictions, const at::Tensor& labels) {
  return (predictions - labels).abs().le(0.25).to(at::kDouble).mean().item<double>();
}
inline std::shared_ptr<EvalMetric> almost_accuracy_metric() {
  return metric_from_function([](const EvalPrediction& all) {
    return Metrics{{"accuracy", almost_accuracy(all.predictions, all.label_ids)}};
  });
}

// An accuracy that does not depend on the predictions: each evaluation gets the next value. The
// last value repeats.
inline std::shared_ptr<EvalMetric> scripted_accuracy(std::vector<double> values) {
  const auto next = std::make_shared<std::size_t>(0);
  return metric_from_function([values = std::move(values), next](const EvalPrediction&) {
    const std::size_t at = std::min(*next, values.size() - 1);
    ++*next;
    return Metrics{{"accuracy", values[at]}};
  });
}

}  // namespace hasten::ported
