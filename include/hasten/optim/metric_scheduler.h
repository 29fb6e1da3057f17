// File: hasten/optim/metric_scheduler.h
// Learning-rate schedules that follow an evaluation metric: reduce_lr_on_plateau and greedy.
//
//   auto scheduler = get_metric_scheduler(SchedulerType::reduce_lr_on_plateau, adamw,
//                                         {{"factor", 0.5}, {"patience", 3}});
//   scheduler->step(evaluation_loss);  // after each evaluation
//   double lr = scheduler->get_last_lr()[0];
//
// reduce_lr_on_plateau multiplies the learning rates by `factor` when the metric has not improved
// for more than `patience` evaluations. greedy does the same, and divides them by `factor` when the
// metric has improved in more than `patience` evaluations in succession. Keys of both: mode (min or
// max: whether a lower or a higher metric is better), factor, patience, threshold (the smallest
// improvement that counts), threshold_mode (rel: a share of the best metric; abs), cooldown
// (evaluations that do not count after a reduction), min_lr, eps (the smallest change of a learning
// rate). Keys of greedy: max_lr, warmup (evaluations that do not count after an increase), smooth
// and window_size (replaces the metric by its mean over a window), reset_start (reductions at
// min_lr before it starts again). Defaults in this order, after mode min: reduce_lr_on_plateau 0.1,
// 10, 1e-4, rel, 0, 0, 1e-8; greedy 0.95, 10, 1e-6, abs, 0, 1e-3, 1e-8, 1, 0, false, 50, 500.
//
// Pass a metric that is equal in all processes. Throws ConfigError "optim.scheduler-kwargs". Thread
// rule: one thread at a time. The optimizer must outlive the scheduler. Source:
// torch.optim.lr_scheduler.ReduceLROnPlateau and transformers' GreedyLR.
#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/kwargs.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

class HASTEN_API MetricScheduler {
 public:
  virtual ~MetricScheduler() = default;
  virtual void step(double metric) = 0;
  // The current learning rate of each group.
  std::vector<double> get_last_lr() const;
  // The state that a resumed run needs; all values are finite. set_state() restores it, and sets
  // the learning rates.
  virtual std::map<std::string, double> state() const = 0;
  virtual void set_state(const std::map<std::string, double>& state) = 0;

 protected:
  explicit MetricScheduler(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  torch::optim::Optimizer& optimizer_;
};

// follows_metric(type) must be true; get_scheduler() makes the other schedules.
HASTEN_API std::unique_ptr<MetricScheduler> get_metric_scheduler(SchedulerType type,
                                                                 torch::optim::Optimizer& optimizer,
                                                                 const Kwargs& kwargs = {});

}  // namespace hasten
