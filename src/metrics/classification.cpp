#include "hasten/metrics/classification.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The rows with labels that are not ignored.
struct LabelledRows {
  at::Tensor logits;  // [rows, classes]
  at::Tensor labels;  // [rows], int64, from 0 up to the number of classes
};

// Throws DataError unless every label is a class or the ignored label.
void check_classes(const at::Tensor& labels, std::int64_t classes) {
  const at::Tensor unknown = labels.ge(classes) | (labels.lt(0) & labels.ne(kIgnoredLabel));
  if (!unknown.any().item<bool>()) return;
  const at::Tensor first = labels.masked_select(unknown).select(0, 0);
  throw DataError("metrics.label",
                  {.what = "a label",
                   .got = str(first.item<std::int64_t>()),
                   .expected = str("a class from 0 to ", classes - 1, ", or ", kIgnoredLabel)});
}

// Throws UsageError unless there is a label for each row of the logits.
void check_shape(const at::Tensor& logits, const at::Tensor& labels) {
  const bool fits =
      logits.dim() >= 2 && !labels.is_floating_point() &&
      logits.sizes().slice(0, static_cast<std::size_t>(logits.dim() - 1)) == labels.sizes();
  if (fits) return;
  throw UsageError("metrics.shape",
                   {.what = "logits and labels of a classifier",
                    .got = str(c10::str(logits.sizes()), " and ", c10::str(labels.scalar_type()),
                               " ", c10::str(labels.sizes())),
                    .expected = "[..., classes] and integers [...]"});
}

LabelledRows labelled_rows(const at::Tensor& logits, const at::Tensor& labels) {
  check_shape(logits, labels);
  const std::int64_t classes = logits.size(-1);
  at::Tensor flat_labels = labels.detach().reshape(-1).to(at::kLong);
  check_classes(flat_labels, classes);
  at::Tensor flat_logits = logits.detach().reshape({-1, classes});
  const at::Tensor counted = flat_labels.ne(kIgnoredLabel).nonzero().squeeze(1);
  if (counted.numel() < flat_labels.numel()) {
    flat_logits = flat_logits.index_select(0, counted);
    flat_labels = flat_labels.index_select(0, counted);
  }
  return {flat_logits, flat_labels};
}

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// Returns the area under the ROC curve: the share of pairs of a positive and a negative row in
// which the positive row has the higher score. Equal scores count half. Scores that are NaN have no
// order, and hence no area.
double roc_area(const std::vector<double>& scores, const std::vector<bool>& positive) {
  if (std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); }))
    return std::numeric_limits<double>::quiet_NaN();
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double positives = 0, others = 0, pairs = 0;
  for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
    double equal_positives = 0;
    for (; to < order.size() && scores[order[to]] == scores[order[from]]; ++to)
      equal_positives += positive[order[to]] ? 1 : 0;
    const double equal_others = static_cast<double>(to - from) - equal_positives;
    pairs += equal_positives * (others + equal_others / 2);
    positives += equal_positives;
    others += equal_others;
  }
  if (positives == 0 || others == 0) return std::numeric_limits<double>::quiet_NaN();
  return pairs / (positives * others);
}

}  // namespace

void Accuracy::add(const at::Tensor& logits, const at::Tensor& labels) {
  if (labels.is_floating_point() || (logits.dim() > 0 && logits.size(-1) == 1)) return;
  check_shape(logits, labels);
  const at::Tensor classes = labels.to(at::kLong);
  check_classes(classes, logits.size(-1));
  const at::Tensor counted = classes.ne(kIgnoredLabel);
  correct_ += (logits.argmax(-1).eq(classes) & counted).sum().item<std::int64_t>();
  total_ += counted.sum().item<std::int64_t>();
}

Metrics Accuracy::compute() const {
  if (total_ == 0) return {};
  return {{"accuracy", correct_ / total_}};
}

TopKAccuracy::TopKAccuracy(std::int64_t k) : k_(k) {
  if (k < 1)
    throw UsageError("metrics.top-k", {.what = "k", .got = str(k), .expected = "at least 1"});
}

void TopKAccuracy::add(const at::Tensor& logits, const at::Tensor& labels) {
  const LabelledRows rows = labelled_rows(logits, labels);
  const at::Tensor label = rows.labels.unsqueeze(1);
  const at::Tensor score = rows.logits.gather(1, label);
  const at::Tensor later = at::arange(rows.logits.size(1), label.options()).unsqueeze(0).gt(label);
  const at::Tensor before = rows.logits.gt(score) | (rows.logits.eq(score) & later);
  // No logit is larger than NaN, so a model that has diverged would otherwise be always right.
  const at::Tensor hit = before.sum(1).lt(k_) & score.squeeze(1).isnan().logical_not();
  correct_ += hit.sum().item<std::int64_t>();
  total_ += rows.labels.numel();
}

Metrics TopKAccuracy::compute() const {
  if (total_ == 0) return {};
  return {{score_names().front(), correct_ / total_}};
}

std::vector<std::string> TopKAccuracy::score_names() const {
  return {str("top_", k_, "_accuracy")};
}

ConfusionMatrix::ConfusionMatrix(std::int64_t num_labels) : num_labels_(num_labels) {
  if (num_labels < 2) {
    throw UsageError(
        "metrics.num-labels",
        {.what = "the number of classes", .got = str(num_labels), .expected = "at least 2"});
  }
  reset();
}

void ConfusionMatrix::reset() {
  counts_.assign(static_cast<std::size_t>(num_labels_ * num_labels_), 0);
}

void ConfusionMatrix::add(const at::Tensor& logits, const at::Tensor& labels) {
  const LabelledRows rows = labelled_rows(logits, labels);
  if (rows.logits.size(1) != num_labels_) {
    throw UsageError("metrics.shape", {.what = "the last dimension of the logits",
                                       .got = str(rows.logits.size(1)),
                                       .expected = str(num_labels_, ", the number of classes")});
  }
  const at::Tensor cells = rows.labels * num_labels_ + rows.logits.argmax(1);
  const at::Tensor added =
      at::bincount(cells.cpu(), {}, num_labels_ * num_labels_).to(at::kDouble).contiguous();
  const double* values = added.const_data_ptr<double>();
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += values[i];
}

std::vector<double*> ConfusionMatrix::counts() {
  std::vector<double*> out;
  for (double& value : counts_) out.push_back(&value);
  return out;
}

double ConfusionMatrix::count(std::int64_t label, std::int64_t prediction) const {
  return counts_.at(static_cast<std::size_t>(label * num_labels_ + prediction));
}

double ConfusionMatrix::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), 0.0);
}

Metrics ConfusionMatrix::compute() const {
  if (total() == 0) return {};
  Metrics out;
  for (std::int64_t label = 0; label < num_labels_; ++label) {
    for (std::int64_t prediction = 0; prediction < num_labels_; ++prediction)
      out[str("confusion_", label, "_", prediction)] = count(label, prediction);
  }
  return out;
}

namespace {

// The counts of one class, or the sums over several.
struct ClassCounts {
  double correct = 0, labels = 0, predictions = 0;

  double precision() const { return ratio(correct, predictions); }
  double recall() const { return ratio(correct, labels); }
  double f1() const { return ratio(2 * correct, labels + predictions); }
  bool occurs() const { return labels + predictions > 0; }
};

std::vector<ClassCounts> counts_by_class(const ConfusionMatrix& matrix) {
  std::vector<ClassCounts> out(static_cast<std::size_t>(matrix.num_labels()));
  for (std::int64_t label = 0; label < matrix.num_labels(); ++label) {
    for (std::int64_t prediction = 0; prediction < matrix.num_labels(); ++prediction) {
      const double count = matrix.count(label, prediction);
      out[static_cast<std::size_t>(label)].labels += count;
      out[static_cast<std::size_t>(prediction)].predictions += count;
      if (label == prediction) out[static_cast<std::size_t>(label)].correct = count;
    }
  }
  return out;
}

Metrics scores_of(const ClassCounts& counts) {
  return {{"precision", counts.precision()}, {"recall", counts.recall()}, {"f1", counts.f1()}};
}

Metrics mean_scores(const std::vector<ClassCounts>& classes, bool weighted) {
  Metrics sums{{"precision", 0}, {"recall", 0}, {"f1", 0}};
  double weights = 0;
  for (const ClassCounts& counts : classes) {
    if (!counts.occurs()) continue;
    const double weight = weighted ? counts.labels : 1;
    weights += weight;
    for (const auto& [name, score] : scores_of(counts)) sums[name] += weight * score;
  }
  for (auto& [name, sum] : sums) sum = ratio(sum, weights);
  return sums;
}

}  // namespace

PrecisionRecallF1::PrecisionRecallF1(std::int64_t num_labels, Average average)
    : ConfusionMatrix(num_labels), average_(average) {
  if (average == Average::binary && num_labels != 2) {
    throw UsageError("metrics.average", {.what = "Average::binary",
                                         .got = str(num_labels, " classes"),
                                         .expected = "2",
                                         .hint = "use micro, macro or weighted"});
  }
}

Metrics PrecisionRecallF1::compute() const {
  if (total() == 0) return {};
  const std::vector<ClassCounts> classes = counts_by_class(*this);
  if (average_ == Average::binary) return scores_of(classes[1]);
  if (average_ != Average::micro) return mean_scores(classes, average_ == Average::weighted);
  ClassCounts sum;
  for (const ClassCounts& counts : classes) {
    sum.correct += counts.correct;
    sum.labels += counts.labels;
    sum.predictions += counts.predictions;
  }
  return scores_of(sum);
}

// Source: the multi-class formula of Gorodkin (2004), as in scikit-learn's matthews_corrcoef.
Metrics MatthewsCorrelation::compute() const {
  const double rows = total();
  if (rows == 0) return {};
  double correct = 0, both = 0, labels = 0, predictions = 0;
  for (const ClassCounts& counts : counts_by_class(*this)) {
    correct += counts.correct;
    both += counts.labels * counts.predictions;
    labels += counts.labels * counts.labels;
    predictions += counts.predictions * counts.predictions;
  }
  const double product = (rows * rows - predictions) * (rows * rows - labels);
  return {{"matthews_correlation", ratio(correct * rows - both, std::sqrt(product))}};
}

void RocAuc::reset() {
  scores_.clear();
  labels_.clear();
}

void RocAuc::add(const at::Tensor& logits, const at::Tensor& labels) {
  const bool one_score = logits.dim() > 0 && logits.size(-1) == 1 && !labels.is_floating_point();
  // A single logit is the score of class 1. With a zero as the logit of class 0, the difference of
  // the two logits is that score.
  const LabelledRows rows =
      labelled_rows(one_score ? at::cat({at::zeros_like(logits), logits}, -1) : logits, labels);
  at::Tensor scores = rows.logits.to(at::kCPU, at::kDouble);
  scores = scores.size(1) == 2 ? scores.select(1, 1).unsqueeze(1) - scores.select(1, 0).unsqueeze(1)
                               : scores.softmax(1);
  if (!scores_.empty() && scores_.size() != static_cast<std::size_t>(scores.size(1))) {
    throw UsageError("metrics.shape", {.what = "the number of classes",
                                       .got = str(rows.logits.size(1)),
                                       .expected = "the same in each batch"});
  }
  scores_.resize(static_cast<std::size_t>(scores.size(1)));
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const at::Tensor column = scores.select(1, static_cast<std::int64_t>(i)).contiguous();
    const double* values = column.const_data_ptr<double>();
    scores_[i].insert(scores_[i].end(), values, values + column.numel());
  }
  const at::Tensor flat = rows.labels.cpu().contiguous();
  const std::int64_t* values = flat.const_data_ptr<std::int64_t>();
  labels_.insert(labels_.end(), values, values + flat.numel());
}

Metrics RocAuc::compute() const {
  if (labels_.empty()) return {};
  double sum = 0;
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const std::int64_t label = scores_.size() == 1 ? 1 : static_cast<std::int64_t>(i);
    std::vector<bool> positive;
    positive.reserve(labels_.size());
    for (const std::int64_t value : labels_) positive.push_back(value == label);
    sum += roc_area(scores_[i], positive);
  }
  return {{"roc_auc", sum / static_cast<double>(scores_.size())}};
}

void Perplexity::add(const at::Tensor& logits, const at::Tensor& labels) {
  at::Tensor predicting = logits, predicted = labels;
  if (next_token_) {
    if (logits.dim() != 3 || labels.dim() != 2) {
      throw UsageError("metrics.shape",
                       {.what = "logits and labels of a decoder",
                        .got = str(c10::str(logits.sizes()), " and ", c10::str(labels.sizes())),
                        .expected = "[rows, tokens, classes] and [rows, tokens]"});
    }
    predicting = logits.slice(1, 0, -1);
    predicted = labels.slice(1, 1);
  }
  const LabelledRows rows = labelled_rows(predicting, predicted);
  // Converts a part of the rows at a time, because all logits in double would take twice their
  // memory.
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, (1 << 22) / rows.logits.size(1));
  for (std::int64_t from = 0; from < rows.logits.size(0); from += rows_at_once) {
    const at::Tensor part = rows.logits.slice(0, from, from + rows_at_once).to(at::kDouble);
    const at::Tensor label = rows.labels.slice(0, from, from + rows_at_once).unsqueeze(1);
    loss_ -= part.log_softmax(1).gather(1, label).sum().item<double>();
  }
  total_ += rows.labels.numel();
}

Metrics Perplexity::compute() const {
  if (total_ == 0) return {};
  return {{"perplexity", std::exp(loss_ / total_)}};
}

}  // namespace hasten
