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

#include "hasten/checkpoint/training_state.h"
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
  std::int64_t nonfinite() const { return run_.nonfinite; }

  // What a checkpoint keeps, and a resumed run goes on from. All processes call sums().
  struct Sums {
    LossSum of_run, since_log;
  };
  Sums sums();
  void restore(const Sums& sums) {
    run_ = sums.of_run;
    log_ = sums.since_log;
  }

 private:
  void count(double loss, std::int64_t step);
  // What the steps since the last reading come to, over all processes.
  struct Unread {
    double finite = 0, all = 0;
    std::int64_t nonfinite = 0, first_nonfinite = 0;  // the first such step
  };
  // Reads what is on the device.
  void settle();
  Unread own_unread() const;
  Unread unread_of_all() const;
  Unread unread_by_step() const;

  const bool filter_, deferred_;
  Group group_;
  at::Device device_;
  Listener listener_;
  double step_sum_ = 0, latest_ = 0;
  LossSum log_, run_;  // of the steps since the last log, and of all

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
