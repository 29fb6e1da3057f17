// File: trainer/loss_record.h (internal)
// The losses of a run: of a step's micro-batches, of the steps since the last log, and of all
// steps. A device that defers reading sums them, and they are read when they are logged.
//
//   losses.add(loss, items);                        // each micro-batch
//   losses.close(totals, step);                     // each step; totals: of all processes
//   const LossRecord::Logged logged = losses.take_since_log(step);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hasten/checkpoint/training_state.h"
#include "hasten/options/training_arguments.h"
#include "hasten/process/group.h"
#include "trainer/agreement.h"

namespace hasten {

class LossRecord {
 public:
  // Steps whose loss is not finite: one or, if reading is deferred, all since the last log.
  struct Nonfinite {
    // The first such step, and their number.
    std::int64_t step, count;
    double loss;  // not finite; if reading is deferred, the sum of all steps
  };
  // May throw.
  using Listener = std::function<void(const Nonfinite&)>;
  // `deferred`: losses are read only when they are logged.
  LossRecord(const TrainingArguments& args, Group group, at::Device device, bool deferred,
             Listener listener);

  // Adds a loss that is the mean over this many labels or rows of this process.
  void add(const at::Tensor& loss, double items);
  // This process's sum for the step, to be summed over all; 0 if reading is deferred.
  double of_step() const { return step_sum_; }
  // This process's sum for the step so far, which a deferred record reads from the device.
  double open_sum() const;
  void restore_open_sum(double sum);
  // Ends the step.
  void close(const StepTotals& of_all, std::int64_t step);
  // The mean loss of the latest step or, if reading is deferred, of the steps before the last log.
  double latest() const { return latest_; }

  struct Logged {
    double loss;  // the mean over the steps since the last log
    std::int64_t nonfinite;
  };
  // Returns the losses of the steps after the last log, up to `step`. All processes call it.
  Logged take_since_log(std::int64_t step);
  // True if the losses up to `step` have been logged.
  bool is_logged(std::int64_t step) const { return step <= last_logged_; }

  // The mean over the finite steps of the run. All processes call it.
  double mean();
  // Steps of the run that were not finite.
  std::int64_t nonfinite() const { return run_.nonfinite; }

  // Returns the state for a checkpoint, with which a resumed run continues. All processes call it.
  LossPosition position();
  void restore(const LossPosition& position);

 private:
  void count(double loss, std::int64_t step);
  // Sums over the steps since the last reading, over all processes.
  struct DeferredSums {
    double finite = 0, all = 0;
    std::int64_t nonfinite = 0, first_nonfinite = 0;  // the first such step
  };
  // Reads the sums on the device and adds them to log_ and run_.
  void read_deferred();
  DeferredSums own_deferred() const;
  DeferredSums total_deferred() const;
  DeferredSums deferred_by_step() const;

  const bool filter_, deferred_;
  Group group_;
  at::Device device_;
  Listener listener_;
  double step_sum_ = 0, latest_ = 0;
  LossSum log_, run_;  // the sum of the steps since the last log, and that of all
  std::int64_t last_logged_ = 0;

  // On the device: the sum of the open step; since the last reading the sum of finite losses, of
  // all losses, the number that are not finite, and the first step of these.
  at::Tensor open_, finite_sum_, sum_, nonfinite_, first_nonfinite_;
  std::int64_t deferred_steps_ = 0;  // steps since the last reading
  // With several processes, this one's share of each of these steps: a step's loss is finite
  // if all shares are.
  struct Share {
    std::int64_t step;
    at::Tensor loss;
  };
  std::vector<Share> shares_;
};

}  // namespace hasten
