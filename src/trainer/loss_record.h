// File: trainer/loss_record.h (internal)
// The losses of a run: of a step's micro-batches, of the steps since the last log, and of all
// steps. A device that reads losses late keeps their sums (LossReading).
//
//   losses.add(loss, items);                        // each micro-batch
//   losses.close(totals, step);                     // each step; totals: of all processes
//   const LossRecord::LoggedLosses logged = losses.take_since_log(step, norm);
//
// With LossReading::at_logs, close() and all functions that read are collectives: the processes
// read at the same steps. Thread rule: that of the Trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/options/training_arguments.h"
#include "hasten/process/group.h"
#include "trainer/agreement.h"
#include "trainer/loss_reading.h"
#include "trainer/step_sums.h"

namespace hasten {

class LossRecord {
 public:
  // The steps with a loss that is not finite: one step or, with LossReading::at_logs, all such
  // steps since the last reading.
  struct NonfiniteLosses {
    // The first such step, and the number of such steps.
    std::int64_t step, count;
    double loss;  // the loss of the first such step
  };
  // May throw.
  using Listener = std::function<void(const NonfiniteLosses&)>;
  // `repeats` says whether a graph may repeat add() with a tensor.
  LossRecord(const TrainingArguments& args, Group group, at::Device device, LossReading reading,
             Listener listener, bool repeats = false);

  // Adds a loss that is the mean over this many labels or rows of this process.
  void add(const at::Tensor& loss, double items);
  // Does the same with a number of items on the device, in double. Only with LossReading::at_logs.
  void add(const at::Tensor& loss, const at::Tensor& items) { sums_->add(loss, items); }
  // Returns this process's sum for the step, which is to be summed over all processes. 0 with
  // LossReading::at_logs.
  double step_sum() const;
  // Returns this process's sum for the step so far. It may wait for the device.
  double open_sum() const;
  void restore_open_sum(double sum);
  // Ends the step.
  void close(const StepTotals& totals, std::int64_t step);
  // Returns the mean loss of the latest step that has been read, or 0 if none has been read.
  double latest() const { return latest_; }
  // Reads the losses up to the latest step, and returns the loss of that step.
  double read_latest();

  struct LoggedLosses {
    double loss;  // the mean over the steps since the last log
    std::int64_t nonfinite;
    double grad_norm;
  };
  // Returns the losses of the steps after the last log, up to `step`, and the norm. Waits
  // for the device only once, unless it compiles programs.
  LoggedLosses take_since_log(std::int64_t step, const DeferredScalar& grad_norm = {});
  // True if the losses up to `step` have been logged.
  bool is_logged(std::int64_t step) const { return step <= last_logged_; }

  // Returns the mean over the steps of the run: over the finite ones with logging_nan_inf_filter,
  // or NaN if none of them is finite, and over all steps without it. 0 if there are no steps.
  double mean();
  // Returns the number of steps of the run that were not finite.
  std::int64_t nonfinite() const { return run_.nonfinite; }

  // Returns the state for a checkpoint, with which a resumed run continues.
  LossPosition position();
  void restore(const LossPosition& position);

  // Returns the tensors on the device, for Anatomy::watch_functionality.
  std::vector<at::Tensor> on_device() const;

 private:
  // Counts a step's loss. Returns whether it is finite.
  bool count(double loss);
  // Reads the closed steps, and returns the value of `extra`.
  double read(const DeferredScalar& extra = {});
  // Returns the sums of the closed steps over all processes.
  std::vector<double> sum_over_ranks(const std::vector<double>& own) const;

  const bool filter_;
  const LossReading reading_;
  Group group_;
  Listener listener_;
  double step_sum_ = 0, latest_ = 0;
  LossSum log_, run_;  // the sums of the steps since the last log, and of all steps
  std::int64_t last_logged_ = 0;

  std::unique_ptr<StepSums> sums_;  // null with LossReading::each_batch
  // The steps that are closed and not read yet.
  struct ClosedStep {
    std::int64_t step;
    double items;  // of all processes
  };
  std::vector<ClosedStep> closed_;
};

}  // namespace hasten
