// File: trainer/eval_prediction.h (internal)
// The outputs and the labels of an evaluation's batches (EvalPrediction, hasten/metrics/metric.h).
//
//   EvalPrediction batch = outputs_of(model_output, ignored);
//   for_each_tensor_of(batch, [&](at::Tensor& rows) { rows = narrow_rows(rows, count); });
//   add_rows(metric, gather_predictions(accelerator, batch));
//
// Thread rule: that of the Trainer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/metrics/metric.h"
#include "hasten/trainer/trainer.h"
#include "trainer/prediction_buffer.h"

namespace hasten {

// Returns the outputs of a model for metrics and predictions. If the model returns logits, its
// hidden states are left out.
EvalPrediction outputs_of(const ModelOutput& out, const Trainer::IgnoreKeys& ignored);

bool has_outputs(const EvalPrediction& batch);
bool has_labels(const EvalPrediction& batch);
// Returns the number of rows of a batch with labels.
std::int64_t rows_with_labels(const EvalPrediction& batch);

// Calls f with each output that is defined, with each column of labels, or with both.
template <class F>
void for_each_output(EvalPrediction& batch, F&& f) {
  if (batch.predictions.defined()) f(batch.predictions);
  for (auto& [name, tensor] : batch.other_predictions) f(tensor);
}
template <class F>
void for_each_label(EvalPrediction& batch, F&& f) {
  if (batch.label_ids.defined()) f(batch.label_ids);
  for (auto& [name, tensor] : batch.labels) f(tensor);
}
template <class F>
void for_each_tensor_of(EvalPrediction& batch, F&& f) {
  for_each_output(batch, f);
  for_each_label(batch, f);
}

// Adds rows to a metric.
void add_rows(EvalMetric& metric, const EvalPrediction& rows);

// Returns the rows of all processes, in rank order, with the second dimension padded to one length
// with -100. A collective.
EvalPrediction gather_predictions(const Accelerator& accelerator, EvalPrediction rows);
// Returns the rows of each process that has rows, in the form that they have in a batch of their
// own. A collective.
std::vector<EvalPrediction> gather_predictions_by_rank(const Accelerator& accelerator,
                                                       const EvalPrediction& rows);

// Collects the tensors of all batches by name.
class PredictedRows {
 public:
  // `batches_on_device` is the number of batches that stay on their device
  // (TrainingArguments::eval_accumulation_steps).
  explicit PredictedRows(std::optional<std::int64_t> batches_on_device)
      : batches_on_device_(batches_on_device) {}
  void add(const EvalPrediction& batch);
  // Returns all rows, on the CPU.
  EvalPrediction take();

 private:
  using Buffers = std::map<std::string, PredictionBuffer>;
  void add(Buffers& buffers, const std::string& name, const at::Tensor& rows) const;
  static TensorDict take(Buffers& buffers);

  std::optional<std::int64_t> batches_on_device_;
  Buffers predictions_, label_ids_, other_predictions_, labels_;
};

}  // namespace hasten
