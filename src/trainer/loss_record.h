// File: trainer/loss_record.h (internal)
// The losses of a run: of the micro-batches of a step, of the steps since the last log, of all
// steps. On a device that defers reading they are added up there, and are known when they are
// logged.
//
//   losses.add(loss, items);                        // each micro-batch
//   losses.close(totals, step);                     // each step; totals: of all processes
//   const LossRecord::Logged logged = losses.take(steps);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "hasten/config/training_arguments.h"
#include "hasten/process/group.h"
#include "trainer/agreement.h"

namespace hasten {

class LossRecord {
 public:
  // `on_nonfinite` is told of a step whose loss is not finite, and of how many more there are until
  // the next log; it may throw.
  struct Nonfinite {
    std::int64_t step, count;
    double loss;  // the first one's
  };
  using Listener = std::function<void(const Nonfinite&)>;
  // `deferred`: losses are not read before they are logged.
  LossRecord(const TrainingArguments& args, Group group, at::Device device, bool deferred,
             Listener listener);

  // The mean loss over this many labels or rows of this process.
  void add(const at::Tensor& loss, double items);
  // What this process has of the step, where it is known: for the sum over all of them.
  double of_step() const { return step_sum_; }
  // The step is over.
  void close(const StepTotals& of_all, std::int64_t step);
  // The mean of the latest step, or of those before the last log where reading is deferred.
  double latest() const { return latest_; }

  struct Logged {
    double loss;  // the mean over the steps since the last one
    std::int64_t nonfinite;
  };
  // Of as many steps. All processes call it.
  Logged take(std::int64_t steps);

  // Of all steps of the run that were finite; and how many were not. All processes call it.
  double mean();
  std::int64_t nonfinite() const { return total_nonfinite_; }

 private:
  void count(double loss, std::int64_t step);
  // What the steps since the last reading come to, over all processes.
  struct Sums {
    double finite = 0, all = 0;
    std::int64_t nonfinite = 0, first_nonfinite = 0;  // the first such step
  };
  // Reads what is on the device.
  void settle();
  Sums own_sums() const;
  Sums sums_of_all() const;
  Sums sums_by_step() const;

  const bool filter_, deferred_;
  Group group_;
  at::Device device_;
  Listener listener_;
  double step_sum_ = 0, latest_ = 0;
  double logged_ = 0, total_ = 0;            // sums of the steps since the last log; of all
  std::int64_t finite_ = 0, nonfinite_ = 0;  // steps since the last log
  std::int64_t total_finite_ = 0, total_nonfinite_ = 0;

  // On the device: the open step's sum; since the last reading the sum of finite losses, of all,
  // the number of those that are not finite, and the first step of them.
  at::Tensor open_, finite_sum_, sum_, bad_, first_bad_;
  std::int64_t unread_ = 0;  // steps
  // This process's share of each of them, where there are others: the loss of a step is finite
  // where all of its shares are.
  struct Share {
    std::int64_t step;
    at::Tensor loss;
  };
  std::vector<Share> shares_;
};

}  // namespace hasten
