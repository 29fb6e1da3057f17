// File: hasten/trainer/evaluation.h
// Scores of a model on a data set, batch by batch: memory stays bounded, however many rows there
// are.
//
//   Trainer trainer(model, arguments, {.train_dataset = train, .eval_dataset = eval,
//                                      .compute_metrics = std::make_shared<Accuracy>()});
//   Metrics metrics = trainer.evaluate();          // eval_loss, eval_accuracy, eval_runtime, ...
//
// A function of all predictions at once, as the peer's compute_metrics, is made into one with
// collecting(); it keeps every prediction in memory, on the CPU. Thread rule: called on the thread
// that trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "hasten/trainer/trainer_state.h"

namespace hasten {

// All that was predicted. logits [rows, ...], label_ids [rows, ...]; token-level tensors of unequal
// length are padded with -100.
struct EvalPrediction {
  at::Tensor predictions;
  at::Tensor label_ids;
};

class EvalMetric {
 public:
  virtual ~EvalMetric() = default;
  // Forgets what was added.
  virtual void reset() = 0;
  // One batch's logits and labels.
  virtual void add(const at::Tensor& logits, const at::Tensor& labels) = 0;
  // Names without the prefix "eval_".
  virtual Metrics compute() const = 0;
  // With several processes: numbers of which the sums over the processes are those of all rows.
  // Each process then adds its own rows alone. None (the default): each is given the rows of all,
  // batch by batch in the data's order.
  virtual std::vector<double*> counts() { return {}; }
};

// "accuracy": the share of labels (those that are not -100) that the largest logit hits. Nothing
// for a regression.
class Accuracy : public EvalMetric {
 public:
  void reset() override { right_ = total_ = 0; }
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<double*> counts() override { return {&right_, &total_}; }

 private:
  double right_ = 0, total_ = 0;  // exact: labels are fewer than 2^53
};

std::shared_ptr<EvalMetric> collecting(
    std::function<Metrics(const EvalPrediction&)> compute_metrics);

// Tensors one after the other along the first dimension; those of unequal second dimension are
// filled with -100 behind.
at::Tensor concatenate_padded(const std::vector<at::Tensor>& tensors);

}  // namespace hasten
