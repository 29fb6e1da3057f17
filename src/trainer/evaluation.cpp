#include "hasten/trainer/evaluation.h"

#include <torch/torch.h>

#include "data/padding.h"

namespace hasten {

void Accuracy::add(const at::Tensor& logits, const at::Tensor& labels) {
  if (labels.is_floating_point() || logits.size(-1) == 1) return;  // a regression has no hits
  const at::Tensor counted = labels.ne(kIgnoredLabel);
  right_ += (logits.argmax(-1).eq(labels) & counted).sum().item<std::int64_t>();
  total_ += counted.sum().item<std::int64_t>();
}

Metrics Accuracy::compute() const {
  if (total_ == 0) return {};
  return {{"accuracy", static_cast<double>(right_) / static_cast<double>(total_)}};
}

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

namespace {

class CollectingMetric : public EvalMetric {
 public:
  explicit CollectingMetric(std::function<Metrics(const EvalPrediction&)> compute)
      : compute_(std::move(compute)) {}
  void reset() override {
    predictions_.clear();
    labels_.clear();
  }
  void add(const at::Tensor& logits, const at::Tensor& labels) override {
    predictions_.push_back(logits.to(at::kCPU));
    labels_.push_back(labels.to(at::kCPU));
  }
  Metrics compute() const override {
    return compute_({concatenate_padded(predictions_), concatenate_padded(labels_)});
  }

 private:
  std::function<Metrics(const EvalPrediction&)> compute_;
  std::vector<at::Tensor> predictions_, labels_;
};

}  // namespace

std::shared_ptr<EvalMetric> metric_from_function(
    std::function<Metrics(const EvalPrediction&)> compute_metrics) {
  return std::make_shared<CollectingMetric>(std::move(compute_metrics));
}

}  // namespace hasten
