// File: hasten/metrics/metric.h
// Scores a model on a dataset batch by batch. hasten/metrics/classification.h and regression.h have
// the usual metrics; a metric of your own derives from EvalMetric.
//
//   auto metric = combine_metrics({std::make_shared<Accuracy>(),
//                                  metric_from_function([](const EvalPrediction& all) -> Metrics {
//                                    return {{"mean_logit", all.predictions.mean().item<double>()}};
//                                  })});
//   metric->add(logits, labels);  // [rows, classes] and [rows], once per batch
//   double accuracy = metric->compute().at("accuracy");
//
// The Trainer takes a metric as TrainerParts::compute_metrics, and its evaluations return the
// scores as eval_accuracy and so on.
//
// A model such as GPT-2 compares each label with the logits of the token before it. Even then, a
// metric and a function get the labels of the data as they are, as in the Hugging Face Trainer.
// Only a metric whose needs_aligned_labels() is true gets each label at the position of the logits
// that predict it, and -100 at the last position. These are the metrics of classification.h and
// entities.h, except Perplexity(true). The Trainer moves the labels; a program that calls add()
// itself passes aligned labels to such a metric.
//
// A metric for a model with several outputs, or for several label columns
// (TrainingArguments::label_names), overrides add_outputs().
//
// metric_from_function() turns a function of all predictions, such as transformers'
// compute_metrics, into a metric. The metric keeps every prediction in memory, on the CPU.
//
// add_outputs() throws UsageError "metrics.outputs" for outputs that the metric does not take, and
// compute() of a combined metric "metrics.name" for two scores of one name. What a metric throws
// ends the evaluation.
// Thread rule: called on the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// Scores by name.
using Metrics = std::map<std::string, double>;

// All predictions and labels of an evaluation. Token-level tensors of unequal length are padded
// with -100. With mixed precision (bf16, fp16), the Trainer converts outputs of 16 bits to float,
// as Accelerate does; with bf16_full_eval, fp16_full_eval or weights of 16 bits alone, they keep
// their type.
struct EvalPrediction {
  at::Tensor predictions = {};  // logits [rows, ...]; undefined if the model has none
  at::Tensor label_ids = {};    // [rows, ...]; undefined if there are several label columns
  // The other outputs of the model, and the columns of several labels, by name.
  TensorDict other_predictions = {}, labels = {};
};

class HASTEN_API EvalMetric {
 public:
  virtual ~EvalMetric() = default;
  // Discards the batches that were added.
  virtual void reset() = 0;
  // Adds the logits and labels of one batch.
  virtual void add(const at::Tensor& logits, const at::Tensor& labels) = 0;
  // Adds a batch of a model with outputs other than logits, or of data with several label columns.
  // The default passes the logits and the single label column to add(), and throws UsageError
  // "metrics.outputs" if there are none or several.
  virtual void add_outputs(const EvalPrediction& batch);
  // Returns the scores by name, without the prefix "eval_".
  virtual Metrics compute() const = 0;
  // Returns the names of all scores that compute() may return, if they are known before any batch
  // is added. The Trainer then refuses another metric_for_best_model before it trains. If empty
  // (the default), they are not known. A class that overrides compute() of another metric also
  // overrides this.
  virtual std::vector<std::string> score_names() const { return {}; }
  // Returns the numbers from which the scores are computed, if their sums over the processes are
  // the numbers for all rows. Each process then adds only its own rows, and the numbers are summed
  // over the processes. If empty (the default), each process adds the rows of all processes, batch
  // by batch in the order of the data.
  virtual std::vector<double*> counts() { return {}; }
  // True if the Trainer is to align a single column of labels with the logits that predict them,
  // for a model whose TrainingTraits::shifts_labels() is true. With false (the default), and with
  // several columns, labels stay as the data has them.
  virtual bool needs_aligned_labels() const { return false; }
  // Returns the metrics that get the batches instead of this one, each with the labels that it
  // needs. Empty (the default) for a metric that gets them itself. combine_metrics() overrides it.
  virtual std::vector<EvalMetric*> members() { return {}; }
};

// Returns a metric that keeps all predictions and calls compute_metrics with them.
HASTEN_API std::shared_ptr<EvalMetric> metric_from_function(
    std::function<Metrics(const EvalPrediction&)> compute_metrics);

// Combines several metrics into one, which returns the scores of all of them. compute() throws
// UsageError "metrics.name" if two of them have a score of the same name. Each process adds only
// its own rows if all metrics have counts().
HASTEN_API std::shared_ptr<EvalMetric> combine_metrics(
    std::vector<std::shared_ptr<EvalMetric>> metrics);

// Concatenates the tensors along the first dimension. If their second dimensions differ, they are
// padded with -100 at the end to the largest.
HASTEN_API at::Tensor concatenate_padded(const std::vector<at::Tensor>& tensors);

}  // namespace hasten
