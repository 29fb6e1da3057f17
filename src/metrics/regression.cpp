#include "hasten/metrics/regression.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

struct FlatPair {
  at::Tensor predictions, labels;  // double, on the CPU, of the same length
};

FlatPair flatten_pair(const at::Tensor& predictions, const at::Tensor& labels) {
  if (predictions.numel() != labels.numel()) {
    throw UsageError("metrics.shape", {.what = "a regression's predictions",
                                       .got = str(predictions.numel(), " values"),
                                       .expected = str(labels.numel(), ", one for each label")});
  }
  const auto flat = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU, at::kDouble).reshape(-1).contiguous();
  };
  return {flat(predictions), flat(labels)};
}

void append(std::vector<double>& values, const at::Tensor& tensor) {
  const double* data = tensor.const_data_ptr<double>();
  values.insert(values.end(), data, data + tensor.numel());
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Compares the values themselves, because their mean may be rounded.
bool are_equal(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](double value) { return value == values.front(); });
}

double pearson_correlation(const std::vector<double>& x, const std::vector<double>& y) {
  if (are_equal(x) || are_equal(y)) return std::numeric_limits<double>::quiet_NaN();
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  if (xx == 0 || yy == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

// Returns the rank of each value from 1; equal values get the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    const double rank = (static_cast<double>(from) + static_cast<double>(to) + 1) / 2;
    for (std::size_t i = from; i < to; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

bool has_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

}  // namespace

void MeanErrors::add(const at::Tensor& predictions, const at::Tensor& labels) {
  const FlatPair pair = flatten_pair(predictions, labels);
  const at::Tensor difference = pair.predictions - pair.labels;
  squared_ += difference.square().sum().item<double>();
  absolute_ += difference.abs().sum().item<double>();
  total_ += static_cast<double>(difference.numel());
}

Metrics MeanErrors::compute() const {
  if (total_ == 0) return {};
  const double mse = squared_ / total_;
  return {{"mse", mse}, {"rmse", std::sqrt(mse)}, {"mae", absolute_ / total_}};
}

void CollectedPairs::reset() {
  predictions_.clear();
  labels_.clear();
}

void CollectedPairs::add(const at::Tensor& predictions, const at::Tensor& labels) {
  const FlatPair pair = flatten_pair(predictions, labels);
  append(predictions_, pair.predictions);
  append(labels_, pair.labels);
}

Metrics R2::compute() const {
  if (labels_.empty()) return {};
  const double mean = mean_of(labels_);
  double residual = 0, total = 0;
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    residual += (labels_[i] - predictions_[i]) * (labels_[i] - predictions_[i]);
    total += (labels_[i] - mean) * (labels_[i] - mean);
  }
  if (total == 0) return {{"r2", residual == 0 ? 1.0 : 0.0}};
  return {{"r2", 1 - residual / total}};
}

Metrics Correlation::compute() const {
  if (labels_.empty()) return {};
  if (has_nan(predictions_) || has_nan(labels_)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {{"pearson", nan}, {"spearman", nan}};
  }
  return {{"pearson", pearson_correlation(predictions_, labels_)},
          {"spearman", pearson_correlation(ranks_of(predictions_), ranks_of(labels_))}};
}

}  // namespace hasten
