#include "trainer/run_control.h"

#include "base/signal_text.h"
#include "hasten/base/text.h"
#include "trainer/agreement.h"

namespace hasten {

void Trainer::Impl::RunControl::begin_epoch() {
  trainer_.control.should_epoch_stop = agreed_.stops_epoch = false;
}

// `position` is a step or an epoch, which eval_delay counts as well.
bool Trainer::Impl::RunControl::is_evaluation_due(IntervalStrategy strategy,
                                                  double position) const {
  return trainer_.args.eval_strategy == strategy && trainer_.args.eval_delay <= position;
}

void Trainer::Impl::RunControl::request_due_after_step() {
  const TrainingArguments& args = trainer_.args;
  const std::int64_t step = trainer_.state.global_step;
  const bool is_last = step >= plan_.max_steps;
  TrainerControl& control = trainer_.control;
  if (step == 1 && args.logging_first_step) control.should_log = true;
  if (args.logging_strategy == IntervalStrategy::steps && step % plan_.logging_steps == 0)
    control.should_log = true;
  if (is_evaluation_due(IntervalStrategy::steps, static_cast<double>(step)) &&
      (is_last || step % plan_.eval_steps == 0))
    control.should_evaluate = true;
  if (args.save_strategy == SaveStrategy::steps &&
      (is_last || (plan_.save_steps > 0 && step % plan_.save_steps == 0)))
    control.should_save = true;
  if (is_last) control.should_training_stop = true;
}

void Trainer::Impl::RunControl::request_due_after_epoch() {
  const TrainingArguments& args = trainer_.args;
  TrainerControl& control = trainer_.control;
  if (args.logging_strategy == IntervalStrategy::epoch) control.should_log = true;
  if (is_evaluation_due(IntervalStrategy::epoch, trainer_.state.epoch))
    control.should_evaluate = true;
  if (args.save_strategy == SaveStrategy::epoch) control.should_save = true;
}

void Trainer::Impl::RunControl::agree(const CheckpointStatus& status) {
  TrainerControl& control = trainer_.control;
  bool is_writing = status.is_writing;
  merge_control(trainer_.group(), control, is_writing);
  agreed_ = {.stops_training = control.should_training_stop,
             .stops_epoch = control.should_epoch_stop,
             .stop_signal = control.stop_signal,
             .is_writing = is_writing};
  if (!stops_on_signal()) return;
  const std::int64_t step = trainer_.state.global_step;
  if (trainer_.args.enable_jit_checkpoint && !status.is_saved) control.should_save = true;
  trainer_.logger.warning_once(str(signal_text(stop_signal()),
                                   " was received: training stops at step ", step, " of ",
                                   plan_.max_steps));
}

bool Trainer::Impl::RunControl::stops_training() const {
  return trainer_.group().size() == 1 ? trainer_.control.should_training_stop
                                      : agreed_.stops_training;
}

bool Trainer::Impl::RunControl::stops_epoch() const {
  return trainer_.group().size() == 1 ? trainer_.control.should_epoch_stop : agreed_.stops_epoch;
}

}  // namespace hasten
