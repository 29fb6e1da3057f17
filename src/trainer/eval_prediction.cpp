#include "trainer/eval_prediction.h"

#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "models/losses.h"

namespace hasten {
namespace {

at::Tensor gather_padded_rows(const Accelerator& accelerator, const at::Tensor& rows) {
  return accelerator.gather_rows(accelerator.pad_across_processes(rows, 1, kIgnoredLabel));
}

at::Tensor only_tensor(const TensorDict& tensors) {
  return tensors.empty() ? at::Tensor() : tensors.begin()->second;
}

}  // namespace

EvalPrediction outputs_of(const ModelOutput& out, const Trainer::IgnoreKeys& ignored) {
  TensorDict all = out.others;
  if (out.logits.defined()) {
    all["logits"] = out.logits;
  } else {
    if (out.last_hidden_state.defined()) all["last_hidden_state"] = out.last_hidden_state;
    if (out.pooler_output.defined()) all["pooler_output"] = out.pooler_output;
  }
  for (const std::string& name : ignored) all.erase(name);
  EvalPrediction kept;
  for (auto& [name, tensor] : all) {
    if (name == "logits" || all.size() == 1) {
      kept.predictions = tensor;
    } else {
      kept.other_predictions[name] = tensor;
    }
  }
  return kept;
}

bool has_outputs(const EvalPrediction& batch) {
  return batch.predictions.defined() || !batch.other_predictions.empty();
}

bool has_labels(const EvalPrediction& batch) {
  return batch.label_ids.defined() || !batch.labels.empty();
}

std::int64_t rows_with_labels(const EvalPrediction& batch) {
  const at::Tensor& labels = batch.labels.empty() ? batch.label_ids : batch.labels.begin()->second;
  return labels.dim() > 0 ? labels.size(0) : 0;
}

void add_rows(EvalMetric& metric, const EvalPrediction& rows) {
  const bool is_plain = rows.other_predictions.empty() && rows.labels.empty();
  if (is_plain) return metric.add(rows.predictions, rows.label_ids);
  metric.add_outputs(rows);
}

EvalPrediction gather_predictions(const Accelerator& accelerator, EvalPrediction rows) {
  if (accelerator.group().size() == 1) return rows;
  for_each_tensor_of(rows,
                     [&](at::Tensor& tensor) { tensor = gather_padded_rows(accelerator, tensor); });
  return rows;
}

std::vector<EvalPrediction> gather_predictions_by_rank(const Accelerator& accelerator,
                                                       const EvalPrediction& rows) {
  const Group& group = accelerator.group();
  const at::Tensor of_ranks = group.gather(at::scalar_tensor(rows_with_labels(rows), at::kLong));
  const EvalPrediction all = gather_predictions(accelerator, rows);
  std::vector<EvalPrediction> batches;
  std::int64_t first = 0;
  for (std::int64_t rank = 0; rank < group.size(); ++rank) {
    const auto count = of_ranks[rank].item<std::int64_t>();
    if (count == 0) continue;
    batches.push_back(all);
    for_each_tensor_of(batches.back(),
                       [&](at::Tensor& each) { each = each.narrow(0, first, count); });
    first += count;
  }
  return batches;
}

void PredictedRows::add(Buffers& buffers, const std::string& name, const at::Tensor& rows) const {
  buffers.try_emplace(name, batches_on_device_).first->second.add(rows);
}

void PredictedRows::add(const EvalPrediction& batch) {
  if (batch.predictions.defined()) add(predictions_, "", batch.predictions);
  if (batch.label_ids.defined()) add(label_ids_, "", batch.label_ids);
  for (const auto& [name, tensor] : batch.other_predictions) add(other_predictions_, name, tensor);
  for (const auto& [name, tensor] : batch.labels) add(labels_, name, tensor);
}

TensorDict PredictedRows::take(Buffers& buffers) {
  TensorDict all;
  for (auto& [name, buffer] : buffers) all[name] = concatenate_padded(buffer.take());
  return all;
}

EvalPrediction PredictedRows::take() {
  return {.predictions = only_tensor(take(predictions_)),
          .label_ids = only_tensor(take(label_ids_)),
          .other_predictions = take(other_predictions_),
          .labels = take(labels_)};
}

}  // namespace hasten
