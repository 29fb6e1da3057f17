// File: trainer/evaluation.h (internal)
// Runs one pass over the data of an evaluation or a prediction, in all processes. Each process
// computes the outputs of its own rows, and all processes get the loss over all rows.
//
//   Evaluation pass(trainer, dataset, ignored, signal);
//   const auto totals = pass.run({.use = [&](const EvalPrediction& rows) { collect(rows); }});
//
// If one process fails, all throw (trainer/evaluation_agreement.h). Throws UsageError
// "trainer.loss-shape", MemoryError "trainer.out-of-memory", and what data, model and callbacks
// throw. Thread rule: that of the Trainer.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "trainer/eval_prediction.h"
#include "trainer/evaluation_agreement.h"
#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::Evaluation {
 public:
  // `signal` returns the signal that is to end the evaluation, or 0.
  Evaluation(Impl& trainer, const TrainerDataset& dataset, const Trainer::IgnoreKeys& ignored,
             Signal signal);

  // The work for each batch. All may be null. If `use` is null, only the loss is computed.
  struct Handlers {
    // Prepares the work of this process before the first batch.
    std::function<void()> begin;
    // Throws if the outputs and labels of this process cannot be used.
    std::function<void(const EvalPrediction&)> check;
    // Returns the batches of all processes, for `use`. A collective.
    std::function<std::vector<EvalPrediction>(const EvalPrediction&)> gather;
    std::function<void(const EvalPrediction&)> use;
  };
  struct Totals {
    std::optional<double> loss;  // the mean over the rows that have one; unset if none does
    double batches = 0;          // those of this process
    double rows = 0;             // those of all processes
    double labelled_rows = 0;    // those of all processes that have labels
  };
  // Adds each batch to compute_metrics, if there is one.
  Handlers metric_handlers() const;
  // Returns nullopt if a signal has ended the pass.
  std::optional<Totals> run(const Handlers& handlers);

 private:
  // Returns true if a signal ends the pass.
  bool run_batches(PreparedLoader<Loader<AnyBatch>>& loader, const Handlers& handlers);
  bool run_batch(const AnyBatch& batch, const BatchInfo& info, const Handlers& handlers);
  bool ends_after_batch() { return agreement_->ends_after_batch(signal_()); }
  PreparedLoader<Loader<AnyBatch>> prepared_loader() const;
  // Returns the outputs and labels of the rows that count, and adds their loss to the totals.
  // Returns nothing unless the outputs are read.
  EvalPrediction evaluate(const AnyBatch& host_batch, const BatchInfo& info, bool reads_outputs);
  // Returns the outputs and labels of the rows that count. `given` is the batch of the model.
  EvalPrediction real_outputs(const ModelOutput& out, RealRows& real, AnyBatch& given);
  // Calls prediction_step, and logs the rows if it fails.
  ModelOutput predict(AnyBatch& batch, const RealRows& rows) const;
  // Returns the sum of the losses of a batch, and their number.
  StepTotals loss_of(const ModelOutput& out, RealRows& real) const;
  // Runs work of this process that may fail.
  void attempt(const std::function<void()>& work);
  // Runs work, and throws an error with an explanation if memory runs out.
  void explain_memory(const std::function<void()>& work) const;
  Totals totals() const;

  Impl& trainer_;
  const TrainerDataset& dataset_;
  const Trainer::IgnoreKeys& ignored_;
  const Signal signal_;
  std::optional<EvaluationAgreement> agreement_;  // made for each pass
  std::vector<StepTotals> losses_;                // one for each batch
  double rows_ = 0, labelled_rows_ = 0;           // those of this process
};

}  // namespace hasten
