// File: trainer/loss_record.h (internal)
// The losses of a run: of a step's micro-batches, of the steps since the last log, and of all
// steps. A device that reads late sums them (LossReading).
//
//   losses.add(loss, items);                        // each micro-batch
//   losses.close(totals, step);                     // each step; totals: of all processes
//   const LossRecord::Logged logged = losses.take_since_log(step, norm);
//
// With LossReading::at_logs, close() and all functions that read are collectives: the processes
// read at the same steps. Thread rule: that of the Trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hasten/checkpoint/training_state.h"
#include "hasten/options/training_arguments.h"
#include "hasten/process/group.h"
#include "trainer/agreement.h"
#include "trainer/loss_reading.h"
#include "trainer/step_sums.h"

namespace hasten {

class LossRecord {
 public:
  // Steps whose loss is not finite: one or, with LossReading::at_logs, all since the last reading.
  struct Nonfinite {
    // The first such step, and their number.
    std::int64_t step, count;
    double loss;  // that of the first
  };
  // May throw.
  using Listener = std::function<void(const Nonfinite&)>;
  // `repeats`: a graph may repeat add() with a tensor.
  LossRecord(const TrainingArguments& args, Group group, at::Device device, LossReading reading,
             Listener listener, bool repeats = false);

  // Adds a loss that is the mean over this many labels or rows of this process.
  void add(const at::Tensor& loss, double items);
  // The same with a number of items on the device, in double; with LossReading::at_logs.
  void add(const at::Tensor& loss, const at::Tensor& items) { sums_->add(loss, items); }
  // This process's sum for the step, to be summed over all; 0 with LossReading::at_logs.
  double of_step() const;
  // This process's sum for the step so far, which may wait for the device.
  double open_sum() const;
  void restore_open_sum(double sum);
  // Ends the step.
  void close(const StepTotals& of_all, std::int64_t step);
  // The mean loss of the latest step that has been read; 0 before.
  double latest() const { return latest_; }
  // Reads the losses up to the latest step, and returns that of the latest.
  double read_latest();

  struct Logged {
    double loss;  // the mean over the steps since the last log
    std::int64_t nonfinite;
    double grad_norm;
  };
  // Returns the losses of the steps after the last log, up to `step`, and the norm, with one wait
  // for the device where it compiles no programs.
  Logged take_since_log(std::int64_t step, const DeferredScalar& grad_norm = {});
  // True if the losses up to `step` have been logged.
  bool is_logged(std::int64_t step) const { return step <= last_logged_; }

  // The mean over the finite steps of the run.
  double mean();
  // Steps of the run that were not finite.
  std::int64_t nonfinite() const { return run_.nonfinite; }

  // Returns the state for a checkpoint, with which a resumed run continues.
  LossPosition position();
  void restore(const LossPosition& position);

  // The tensors on the device, for Anatomy::watch_functionality.
  std::vector<at::Tensor> on_device() const;

 private:
  // Counts a step's loss. Returns whether it is finite.
  bool count(double loss);
  // Reads the closed steps, and returns the other number.
  double read(const DeferredScalar& also = {});
  // Returns the sums of the closed steps over all processes.
  std::vector<double> over_all(const std::vector<double>& own) const;

  const bool filter_;
  const LossReading reading_;
  Group group_;
  Listener listener_;
  double step_sum_ = 0, latest_ = 0;
  LossSum log_, run_;  // the sum of the steps since the last log, and that of all
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
