// File: trainer/training_schedule.h (internal)
// The schedule of a run's learning rate: it follows the steps, or a metric of the evaluations.
//
//   TrainingSchedule schedule(trainer, optimizer, max_steps, has_evaluations);
//   const double rate = schedule.learning_rate();
//   schedule.after_step();                         // each optimizer step
//   if (schedule.follows_metric()) schedule.after_evaluation(metric);
//
// Thread rule: one thread at a time. The optimizer must outlive it.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

class TrainingSchedule {
 public:
  // Calls create_scheduler() or create_metric_scheduler() of the Trainer. Throws UsageError
  // "trainer.no-eval-data" if it follows a metric and there are no evaluations.
  TrainingSchedule(Trainer& trainer, torch::optim::Optimizer& optimizer, std::int64_t max_steps,
                   bool has_evaluations);

  double learning_rate() const;
  // The rate that the schedule gives each group for the next step. A callback may have set another
  // one. A schedule that follows a metric changes whatever rates the groups have.
  std::vector<double> rates() const;
  bool follows_metric() const { return by_metric_ != nullptr; }
  void after_step();
  void after_evaluation(double metric) { by_metric_->step(metric); }

  // Adds the schedule's state after `step` steps to the position of a checkpoint.
  void save_in(TrainingPosition& position, std::int64_t step) const;
  // Restores the state. A schedule of a different kind than the checkpoint's begins with the rate
  // of the arguments. Throws DataError "checkpoint.position" if the state lacks a number.
  void restore(const TrainingPosition& position);

 private:
  SchedulerType type_;
  std::unique_ptr<LambdaLR> by_step_;  // one of the two is null
  std::vector<double> rates_;          // those that by_step_ has set
  std::unique_ptr<MetricScheduler> by_metric_;
};

}  // namespace hasten
