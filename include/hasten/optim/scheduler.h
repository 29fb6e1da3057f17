// File: hasten/optim/scheduler.h
// Learning-rate schedules as functions of the optimizer's step: linear, cosine, polynomial and
// others, with warm-up.
//
//   auto scheduler = get_scheduler(SchedulerType::linear, adamw,
//                                  {.num_warmup_steps = 10, .num_training_steps = 1000});
//   adamw.step();
//   scheduler->step();  // the learning rate is now base lr * factor(1)
//   double lr = scheduler->get_last_lr()[0];
//
// As in PyTorch, a schedule takes effect when it is made: the first step runs at base lr *
// factor(0). Steps are optimizer steps. Wherever hasten takes a scheduler, any LRScheduler of
// LibTorch can be given. SchedulerOptions::kwargs: num_cycles (cosine*: 0.5, with_restarts: 1),
// lr_end 1e-7 and power 1 (polynomial), timescale (inverse_sqrt: the warm-up or 10000), min_lr or
// min_lr_rate (cosine_with_min_lr, cosine_warmup_with_min_lr), warmup_lr_rate
// (cosine_warmup_with_min_lr), num_decay_steps, num_stable_steps, warmup_type, decay_type (linear |
// cosine | 1-sqrt), min_lr_ratio (warmup_stable_decay).
//
// reduce_lr_on_plateau and greedy depend on a metric; see hasten/optim/metric_scheduler.h.
//
// Throws UsageError "optim.metric-scheduler" for them, ConfigError "optim.scheduler-kwargs" for a
// kwarg that the type does not have, that is missing or that has an invalid value, and
// "optim.unknown-scheduler". Thread rule: one thread at a time. The optimizer must outlive the
// scheduler. Source: the formulas of transformers 5.23, optimization.py.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/kwargs.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

struct SchedulerOptions {
  std::int64_t num_warmup_steps = 0;
  std::int64_t num_training_steps = 0;
  Kwargs kwargs = {};
};

// The factor of the base learning rate as a function of the step. `base_lr` is the learning rate
// to which kwargs such as min_lr and lr_end are relative.
HASTEN_API std::function<double(std::int64_t)> schedule_factor(SchedulerType type,
                                                               const SchedulerOptions& options,
                                                               double base_lr);

// Multiplies the base learning rate of each group by a function of the step.
class HASTEN_API LambdaLR : public torch::optim::LRScheduler {
 public:
  // Group i gets its current learning rate times factors[i](step). Throws c10::Error unless there
  // is one function for each group.
  LambdaLR(torch::optim::Optimizer& optimizer,
           std::vector<std::function<double(std::int64_t)>> factors);

  // The current learning rate of each group.
  std::vector<double> get_last_lr() const { return get_current_lrs(); }
  // The number of steps made.
  std::int64_t last_step() const { return step_count_; }
  // Sets the number of steps and the optimizer's learning rates for that step. A resumed run needs
  // this.
  void set_last_step(std::int64_t step);
  const std::vector<double>& base_lrs() const { return base_lrs_; }

 protected:
  std::vector<double> get_lrs() override {
    return lrs_at(static_cast<std::int64_t>(step_count_) + 1);
  }

 private:
  std::vector<double> lrs_at(std::int64_t step) const;
  void apply(const std::vector<double>& lrs);

  torch::optim::Optimizer& optimizer_;
  std::vector<double> base_lrs_;
  std::vector<std::function<double(std::int64_t)>> factors_;
};

HASTEN_API std::unique_ptr<LambdaLR> get_scheduler(SchedulerType type,
                                                   torch::optim::Optimizer& optimizer,
                                                   const SchedulerOptions& options);
// Takes the name that transformers uses, such as "linear". ConfigError "optim.unknown-scheduler"
// suggests the most similar name.
HASTEN_API std::unique_ptr<LambdaLR> get_scheduler(const std::string& name,
                                                   torch::optim::Optimizer& optimizer,
                                                   const SchedulerOptions& options);

}  // namespace hasten
