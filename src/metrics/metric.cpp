#include "hasten/metrics/metric.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "data/padding.h"
#include "hasten/base/error.h"

namespace hasten {

at::Tensor concatenate_padded(const std::vector<at::Tensor>& tensors) {
  std::int64_t longest = 0;
  for (const at::Tensor& tensor : tensors)
    longest = std::max(longest, tensor.dim() > 1 ? tensor.size(1) : 0);
  std::vector<at::Tensor> equal;
  for (at::Tensor tensor : tensors) {
    if (tensor.dim() > 1 && tensor.size(1) < longest)
      tensor = pad_dim(tensor, 1, longest, kIgnoredLabel);
    equal.push_back(tensor);
  }
  return equal.empty() ? at::Tensor() : at::cat(equal, 0);
}

void EvalMetric::add_outputs(const EvalPrediction& batch) {
  if (batch.predictions.defined() && batch.label_ids.defined())
    return add(batch.predictions, batch.label_ids);
  throw UsageError(
      "metrics.outputs",
      {.what = "a metric of logits and labels",
       .got = batch.predictions.defined() ? "several label columns" : "outputs without logits",
       .expected = "logits, and one column of labels",
       .hint = "override add_outputs() of the metric, or use metric_from_function"});
}

namespace {

class CollectingMetric : public EvalMetric {
 public:
  explicit CollectingMetric(std::function<Metrics(const EvalPrediction&)> compute)
      : compute_(std::move(compute)) {}
  void reset() override {
    predictions_.clear();
    labels_.clear();
    other_predictions_.clear();
    other_labels_.clear();
  }
  void add(const at::Tensor& logits, const at::Tensor& labels) override {
    predictions_.push_back(logits.to(at::kCPU));
    labels_.push_back(labels.to(at::kCPU));
  }
  void add_outputs(const EvalPrediction& batch) override {
    if (batch.predictions.defined()) predictions_.push_back(batch.predictions.to(at::kCPU));
    if (batch.label_ids.defined()) labels_.push_back(batch.label_ids.to(at::kCPU));
    for (const auto& [name, tensor] : batch.other_predictions)
      other_predictions_[name].push_back(tensor.to(at::kCPU));
    for (const auto& [name, tensor] : batch.labels)
      other_labels_[name].push_back(tensor.to(at::kCPU));
  }
  Metrics compute() const override {
    EvalPrediction all{.predictions = concatenate_padded(predictions_),
                       .label_ids = concatenate_padded(labels_)};
    for (const auto& [name, tensors] : other_predictions_)
      all.other_predictions[name] = concatenate_padded(tensors);
    for (const auto& [name, tensors] : other_labels_)
      all.labels[name] = concatenate_padded(tensors);
    return compute_(all);
  }

 private:
  std::function<Metrics(const EvalPrediction&)> compute_;
  std::vector<at::Tensor> predictions_, labels_;
  std::map<std::string, std::vector<at::Tensor>> other_predictions_, other_labels_;
};

class CombinedMetric : public EvalMetric {
 public:
  explicit CombinedMetric(std::vector<std::shared_ptr<EvalMetric>> metrics)
      : metrics_(std::move(metrics)) {}
  void reset() override {
    for (const auto& metric : metrics_) metric->reset();
  }
  void add(const at::Tensor& logits, const at::Tensor& labels) override {
    for (const auto& metric : metrics_) metric->add(logits, labels);
  }
  void add_outputs(const EvalPrediction& batch) override {
    for (const auto& metric : metrics_) metric->add_outputs(batch);
  }
  Metrics compute() const override {
    Metrics all;
    for (const auto& metric : metrics_) {
      for (const auto& [name, score] : metric->compute()) {
        if (all.emplace(name, score).second) continue;
        throw UsageError("metrics.name", {.what = "the score \"" + name + "\"",
                                          .got = "two metrics that compute it",
                                          .hint = "combine metrics with different scores"});
      }
    }
    return all;
  }
  std::vector<std::string> score_names() const override {
    std::vector<std::string> all;
    for (const auto& metric : metrics_) {
      const std::vector<std::string> names = metric->score_names();
      if (names.empty()) return {};
      all.insert(all.end(), names.begin(), names.end());
    }
    return all;
  }
  std::vector<EvalMetric*> members() override {
    std::vector<EvalMetric*> all;
    for (const auto& metric : metrics_) all.push_back(metric.get());
    return all;
  }
  std::vector<double*> counts() override {
    std::vector<double*> all;
    for (const auto& metric : metrics_) {
      const std::vector<double*> counts = metric->counts();
      if (counts.empty()) return {};
      all.insert(all.end(), counts.begin(), counts.end());
    }
    return all;
  }

 private:
  std::vector<std::shared_ptr<EvalMetric>> metrics_;
};

}  // namespace

std::shared_ptr<EvalMetric> combine_metrics(std::vector<std::shared_ptr<EvalMetric>> metrics) {
  return std::make_shared<CombinedMetric>(std::move(metrics));
}

std::shared_ptr<EvalMetric> metric_from_function(
    std::function<Metrics(const EvalPrediction&)> compute_metrics) {
  return std::make_shared<CollectingMetric>(std::move(compute_metrics));
}

}  // namespace hasten
