#include "trainer/training_schedule.h"

#include <stdexcept>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

TrainingSchedule::TrainingSchedule(Trainer& trainer, torch::optim::Optimizer& optimizer,
                                   std::int64_t max_steps, bool has_evaluations)
    : type_(trainer.args().lr_scheduler_type) {
  if (!hasten::follows_metric(type_)) {
    by_step_ = trainer.create_scheduler(optimizer, max_steps);
    rates_ = by_step_->get_last_lr();
    return;
  }
  if (!has_evaluations) {
    throw UsageError("trainer.no-eval-data",
                     {.what = str("lr_scheduler_type ", name_of(type_)),
                      .got = "no evaluation data",
                      .expected = "evaluations, whose metric the learning rate follows",
                      .hint = "pass eval_dataset (--eval_data), or choose another schedule"});
  }
  by_metric_ = trainer.create_metric_scheduler(optimizer);
}

double TrainingSchedule::learning_rate() const {
  return by_step_ ? by_step_->get_last_lr()[0] : by_metric_->get_last_lr()[0];
}

std::vector<double> TrainingSchedule::rates() const {
  return by_step_ ? rates_ : by_metric_->get_last_lr();
}

void TrainingSchedule::after_step() {
  if (!by_step_) return;
  by_step_->step();
  rates_ = by_step_->get_last_lr();
}

void TrainingSchedule::save_in(TrainingPosition& position, std::int64_t step) const {
  position.scheduler_step = by_step_ ? by_step_->last_step() : step;
  if (!by_metric_) return;
  position.metric_schedule =
      MetricScheduleState{.type = std::string(name_of(type_)), .state = by_metric_->state()};
}

void TrainingSchedule::restore(const TrainingPosition& position) {
  if (by_step_) {
    by_step_->set_last_step(position.scheduler_step);
    rates_ = by_step_->get_last_lr();
    return;
  }
  const auto& before = position.metric_schedule;
  if (!before || before->type != name_of(type_)) return;
  try {
    by_metric_->set_state(before->state);
  } catch (const std::out_of_range&) {
    throw DataError("checkpoint.position", {.what = "metric_schedule in training_position.json",
                                            .got = "a state that lacks a number",
                                            .expected = "the state of " + before->type,
                                            .hint = "resume from another checkpoint"});
  }
}

}  // namespace hasten
