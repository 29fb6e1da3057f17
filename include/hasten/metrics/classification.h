// File: hasten/metrics/classification.h
// Metrics of classifiers: accuracy, precision, recall, F1, Matthews correlation, AUC, perplexity.
//
//   auto metrics = combine_metrics({std::make_shared<Accuracy>(),
//                                   std::make_shared<PrecisionRecallF1>(3, Average::weighted)});
//   metrics->add(logits, labels);  // [rows, 3], [rows]
//   double f1 = metrics->compute().at("f1");
//
// Logits are [..., classes] and labels [...], so that the same metrics work for sequences and
// tokens. Labels of -100 are ignored. The prediction is the class with the largest logit, or the
// first of several equal ones. Values match scikit-learn's within 1e-9. A metric to which nothing
// was added has no scores.
//
// add() throws UsageError "metrics.shape" for tensors of the wrong shape, and DataError
// "metrics.label" for a label that is not a class. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/metrics/metric.h"

namespace hasten {

// "accuracy": the share of labels that are predicted correctly. It has no score for a regression,
// which has floating-point labels or one logit.
class HASTEN_API Accuracy : public EvalMetric {
 public:
  void reset() override { correct_ = total_ = 0; }
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"accuracy"}; }
  std::vector<double*> counts() override { return {&correct_, &total_}; }
  bool needs_aligned_labels() const override { return true; }

 private:
  double correct_ = 0, total_ = 0;  // exact, as there are fewer labels than 2^53
};

// "top_K_accuracy", such as top_5_accuracy: the share of labels among the K largest logits. Among
// equal logits, the last counts as the largest, as in scikit-learn's top_k_accuracy_score. A logit
// that is NaN is never among them.
class HASTEN_API TopKAccuracy : public EvalMetric {
 public:
  // Throws UsageError "metrics.top-k" unless k is at least 1.
  explicit TopKAccuracy(std::int64_t k);
  void reset() override { correct_ = total_ = 0; }
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override;
  std::vector<double*> counts() override { return {&correct_, &total_}; }
  bool needs_aligned_labels() const override { return true; }

 private:
  std::int64_t k_;
  double correct_ = 0, total_ = 0;
};

// "confusion_T_P" for each pair of classes: the number of labels T that are predicted as P.
// PrecisionRecallF1 and MatthewsCorrelation are computed from the same counts.
class HASTEN_API ConfusionMatrix : public EvalMetric {
 public:
  // Throws UsageError "metrics.num-labels" for fewer than 2 classes.
  explicit ConfusionMatrix(std::int64_t num_labels);
  void reset() override;
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<double*> counts() override;
  bool needs_aligned_labels() const override { return true; }

  std::int64_t num_labels() const noexcept { return num_labels_; }
  double count(std::int64_t label, std::int64_t prediction) const;
  double total() const;

 private:
  std::int64_t num_labels_;
  std::vector<double> counts_;  // [label, prediction]
};

// Selects how the scores of the classes become one score. binary: the score of class 1. micro: the
// score of the summed counts. macro: the mean of the scores. weighted: the mean of the scores,
// weighted by the number of labels. Only classes that occur among labels or predictions count.
enum class Average { binary, micro, macro, weighted };

// "precision", "recall" and "f1". A score is 0 if its denominator is 0, as with scikit-learn's
// zero_division=0. Average::binary requires two classes (UsageError "metrics.average").
class HASTEN_API PrecisionRecallF1 : public ConfusionMatrix {
 public:
  explicit PrecisionRecallF1(std::int64_t num_labels, Average average = Average::macro);
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"precision", "recall", "f1"}; }

 private:
  Average average_;
};

// "matthews_correlation", for two or more classes. It is 0 if all labels or all predictions are
// equal.
class HASTEN_API MatthewsCorrelation : public ConfusionMatrix {
 public:
  using ConfusionMatrix::ConfusionMatrix;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"matthews_correlation"}; }
};

// "roc_auc": the area under the ROC curve. With one logit, the score of a row is this logit. With
// two, it is their difference, which ranks rows as the probability of class 1 does. With more, the
// area is the mean over the classes of one class against the rest (scikit-learn's
// multi_class="ovr"). It is NaN if a class has no labels, or all of them, or if a score is NaN. The
// metric keeps every score in memory.
class HASTEN_API RocAuc : public EvalMetric {
 public:
  void reset() override;
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"roc_auc"}; }
  bool needs_aligned_labels() const override { return true; }

 private:
  std::vector<std::vector<double>> scores_;  // by class
  std::vector<std::int64_t> labels_;
};

// "perplexity": exp of the mean cross entropy of the labels.
class HASTEN_API Perplexity : public EvalMetric {
 public:
  // With next_token, the logits at a position predict the label of the next position, as in a
  // decoder with its inputs as labels. Logits are then [rows, tokens, classes]. In a Trainer both
  // forms give the same score for such a decoder, because only the other one gets aligned labels.
  explicit Perplexity(bool next_token = false) : next_token_(next_token) {}
  void reset() override { loss_ = total_ = 0; }
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override { return {"perplexity"}; }
  std::vector<double*> counts() override { return {&loss_, &total_}; }
  bool needs_aligned_labels() const override { return !next_token_; }

 private:
  bool next_token_;
  double loss_ = 0, total_ = 0;
};

}  // namespace hasten
