// File: hasten/metrics/regression.h
// Metrics of regressions: errors, R² and correlations.
//
//   auto metrics = combine_metrics({std::make_shared<MeanErrors>(),
//                                   std::make_shared<Correlation>()});
//   metrics->add(logits, labels);  // [rows, 1] or [rows], [rows]
//   double pearson = metrics->compute().at("pearson");
//
// Predictions and labels have the same number of elements. Values match scikit-learn's and SciPy's
// within 1e-9. A metric to which nothing was added has no scores.
//
// add() throws UsageError "metrics.shape" for tensors of other shapes. Thread rule: one thread at a
// time.
#pragma once

#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/metrics/metric.h"

namespace hasten {

// "mse", "rmse" and "mae": the mean squared error, its root and the mean absolute error.
class HASTEN_API MeanErrors : public EvalMetric {
 public:
  void reset() override { squared_ = absolute_ = total_ = 0; }
  void add(const at::Tensor& predictions, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"mse", "rmse", "mae"}; }
  std::vector<double*> counts() override { return {&squared_, &absolute_, &total_}; }

 private:
  double squared_ = 0, absolute_ = 0, total_ = 0;
};

// Keeps all predictions and labels in memory, for metrics that cannot be computed exactly from
// sums.
class HASTEN_API CollectedPairs : public EvalMetric {
 public:
  void reset() override;
  void add(const at::Tensor& predictions, const at::Tensor& labels) override;

 protected:
  std::vector<double> predictions_, labels_;
};

// "r2": the coefficient of determination. If all labels are equal it is 1 for exact predictions and
// 0 otherwise, as in scikit-learn's r2_score.
class HASTEN_API R2 : public CollectedPairs {
 public:
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"r2"}; }
};

// "pearson" and "spearman": the correlation of values, and of their ranks (equal values have their
// mean rank). NaN if all predictions or all labels are equal.
class HASTEN_API Correlation : public CollectedPairs {
 public:
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"pearson", "spearman"}; }
};

}  // namespace hasten
