// The work that follows a step before the next one: what a checkpoint says about it, what a run
// leaves to the run that continues it, and how that run does it.
#include <filesystem>
#include <system_error>
#include <utility>

#include "hasten/process/detail/rank_agreement.h"
#include "trainer/training_run.h"

namespace hasten {

// The loader says that its position is in the next epoch once a step has used the last batch.
bool Trainer::Run::is_epoch_end_due() const {
  return open_epoch_ &&
         (control_.stops_epoch() || trainer_.state.global_step >= run_.plan.max_steps ||
          run_.loader->state().epoch > *open_epoch_);
}

std::optional<DueWork> Trainer::Run::due_work() const {
  const bool is_inside_window = window_batches_ > 0, epoch_end = is_epoch_end_due();
  if (is_inside_window || (!evaluation_due_ && !epoch_end)) return std::nullopt;
  return DueWork{.evaluation = evaluation_due_,
                 .epoch_end = epoch_end,
                 .learning_rate = learning_rate_,
                 .grad_norm = grad_norm_};
}

void Trainer::Run::skip_rest_of_epoch() {
  if (open_epoch_ && control_.stops_epoch()) run_.loader->set_epoch(*open_epoch_ + 1);
}

void Trainer::Run::save() {
  if (window_batches_ == 0) skip_rest_of_epoch();
  checkpoints_.set_due(due_work());
  checkpoints_.save(window_, window_batches_);
  agree();
}

// The checkpoint of a step says what is due after it, so one is enough: a second one would only
// differ in the part of this work that has been done meanwhile.
void Trainer::Run::save_if_requested() {
  if (!std::exchange(trainer_.control.should_save, false)) return;
  const std::int64_t step = trainer_.state.global_step;
  const bool is_resumed = continues_own_checkpoint_ && step == started_at_step_;
  const bool is_enough = control_.stops_on_signal() || is_resumed;
  if (is_enough && checkpoints_.is_saved(step, window_batches_))
    return checkpoints_.update_best_checkpoint();
  save();
}

// The checkpoint is saved before the callbacks and the log: a run that continues calls and logs
// them when it has reached the end of the epoch.
void Trainer::Run::leave_epoch() {
  if (args_.save_strategy == SaveStrategy::epoch) trainer_.control.should_save = true;
  agree();
  save_if_requested();
  trainer_.notify_callbacks(&TrainerCallback::on_epoch_end);
  agree();
  save_if_requested();
  const bool is_logged = run_.losses.is_logged(trainer_.state.global_step);
  if (args_.logging_strategy == IntervalStrategy::epoch && !is_logged) log_loss();
}

void Trainer::Run::do_due_work() {
  const DueWork& due = resumed_.due;
  if ((!due.evaluation && !due.epoch_end) || control_.stops_on_signal()) return;
  open_epoch_ = resumed_.open_epoch;
  learning_rate_ = due.learning_rate;
  grad_norm_ = due.grad_norm;
  std::error_code unknown;
  continues_own_checkpoint_ = is_true_on_all_ranks(
      trainer_.group(),
      std::filesystem::equivalent(resumed_.folder,
                                  checkpoints_.folder_of(trainer_.state.global_step), unknown));
  if (due.evaluation) make_up_evaluation();
  const bool leaves_epoch = is_epoch_end_due() || control_.stops_training();
  if (!open_epoch_ || !leaves_epoch || control_.stops_on_signal()) return;
  skip_rest_of_epoch();
  end_epoch();
}

// Requests whatever was due together with the evaluation, such as a checkpoint. A log was made
// before the checkpoint, and is not repeated.
void Trainer::Run::make_up_evaluation() {
  if (open_epoch_) {
    control_.request_due_after_step();
  } else {
    control_.request_due_after_epoch();
  }
  trainer_.control.should_evaluate = true;
  agree();
  log_evaluate_save();
}

}  // namespace hasten
