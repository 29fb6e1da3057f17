// The loop of a run over epochs, and what is due after a step: logs, evaluations and checkpoints.
#include "trainer/training_run.h"

#include <filesystem>
#include <iostream>
#include <utility>

#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/process/once.h"
#include "trainer/agreement.h"
#include "trainer/best_metric.h"
#include "trainer/step_checks.h"

namespace hasten {

Trainer::Run::Run(Impl& trainer)
    : trainer_(trainer),
      args_(trainer.args),
      run_(trainer, [this](const LossRecord::NonfiniteLosses& bad) { report_nonfinite_loss(bad); }),
      control_(trainer, run_.plan),
      checkpoints_(trainer, run_),
      memory_(trainer),
      graphs_(trainer, run_),
      work_(trainer.model_traits(), args_.include_num_input_tokens_seen, trainer.logger),
      setup_(trainer, run_.optimizer.unwrap()) {}

std::filesystem::path Trainer::Run::newest_checkpoint() {
  checkpoints_.finish();
  const std::int64_t step = checkpoints_.last_saved();
  return step > started_at_step_ ? checkpoints_.folder_of(step) : std::filesystem::path();
}

TrainOutput Trainer::Run::train() {
  trainer_.memory.start(MemoryTracker::Stage::train);
  try {
    return train_to_end();
  } catch (...) {
    trainer_.memory.abandon(MemoryTracker::Stage::train);
    trainer_.for_each_callback(
        [this](TrainerCallback& each) { each.on_train_failed(trainer_.event()); });
    throw;
  }
}

TrainOutput Trainer::Run::train_to_end() {
  checkpoints_.prepare_output();
  check_anatomy_file();
  if (args_.eval_strategy != IntervalStrategy::no)
    (void)trainer_.trainer.get_eval_dataloader(trainer_.parts.eval_dataset);
  begin();
  TrainerState& state = trainer_.state;
  const bool nothing_left = state.global_step >= run_.plan.max_steps;
  if (nothing_left) report_nothing_left();
  do_due_work();
  if (args_.eval_on_start && trainer_.parts.eval_dataset && !nothing_left &&
      !control_.stops_on_signal()) {
    (void)evaluate();
    agree();
  }
  while (state.global_step < run_.plan.max_steps && !control_.stops_training() &&
         run_.loader->epoch() < run_.plan.epochs)
    run_epoch();
  if (anatomy_) report_anatomy();  // the run had fewer steps
  return finish();
}

void Trainer::Run::begin() {
  TrainerState& state = trainer_.state;
  state = trainer_.new_state();
  trainer_.control = TrainerControl{};
  if (!args_.resume_from_checkpoint.empty()) {
    resumed_ = Impl::Resume(trainer_, run_).restore();
    restore_totals();
    checkpoints_.set_last_saved(state.global_step, window_batches_);
  } else {
    trainer_.restore_loss_scale({});
    if (run_.hashes) run_.hashes->start();
  }
  state.max_steps = run_.plan.max_steps;
  state.num_train_epochs = run_.plan.epochs;
  state.logging_steps = static_cast<double>(run_.plan.logging_steps);
  state.eval_steps = static_cast<double>(run_.plan.eval_steps);
  state.save_steps = static_cast<double>(run_.plan.save_steps);
  state.train_batch_size = batch_rows();

  trainer_.accelerator.free_memory();  // drops windows of a run that threw
  // Clipping takes the norm of all gradients. Those of parameters that create_optimizer() has left
  // out would otherwise add up over the run.
  run_.optimizer.set_unstepped_parameters(run_.trained);
  run_.optimizer.zero_grad();
  start_ = Clock::now();
  started_at_step_ = state.global_step;
  trainer_.model->train();
  trainer_.notify_callbacks(&TrainerCallback::on_train_begin);
  agree();
  if (!trainer_.is_elastic() && !evaluates_closure_) memory_.set_retry(dry_retry());
  if (!args_.anatomy.empty()) {
    anatomy_.emplace(trainer_.accelerator.anatomy({.steps = args_.anatomy_steps}));
    anatomy_->watch_functionality(run_.losses.on_device());
  }
}

void Trainer::Run::restore_totals() {
  const auto rank = static_cast<std::size_t>(trainer_.group().rank());
  if (rank >= resumed_.windows.size()) return;
  const WindowPosition& own = resumed_.windows[rank];
  window_batches_ = own.micro_batches;
  window_ = {.items = own.items, .tokens = own.tokens, .flos = own.flos};
  run_.losses.restore_open_sum(own.loss);
}

void Trainer::Run::report_nothing_left() const {
  trainer_.logger.warning(str("nothing is left to train: the run is at step ",
                              trainer_.state.global_step, " of ", run_.plan.max_steps));
}

void Trainer::Run::run_epoch() {
  control_.begin_epoch();
  open_epoch_ = run_.loader->epoch();
  trainer_.notify_callbacks(&TrainerCallback::on_epoch_begin);
  // The model is prepared while its weights are those that training begins with.
  if (!trainer_.prepared)
    trainer_.prepared.emplace(std::get<0>(trainer_.accelerator.prepare(trainer_.model)));
  if (!resumed_.windows.empty())
    trainer_.restore_window(std::exchange(resumed_.windows, {}), resumed_.loss_scale,
                            resumed_.folder);
  train_on_epoch();
  check_parameters();
  skip_rest_of_epoch();
  if (control_.stops_on_signal()) return leave_epoch();
  end_epoch();
}

void Trainer::Run::end_epoch() {
  open_epoch_.reset();
  trainer_.notify_callbacks(&TrainerCallback::on_epoch_end);
  control_.request_due_after_epoch();
  agree();
  log_evaluate_save();
}

void Trainer::Run::train_on_epoch() {
  bool has_batches = false;
  try {
    for (const auto& [batch, info] : with_info(run_.loader)) {
      has_batches = true;
      const ElasticBatchInfo elastic = info.elastic.value_or(ElasticBatchInfo{});
      RealRows rows = real_rows(batch, info);
      if (may_use_graph()) {
        add_to_step(std::move(rows), info.is_last);
      } else {
        run_micro_batch(std::move(rows), elastic.virtual_rank % trainer_.local_virtual_ranks(),
                        elastic.ends_rank);
      }
      // A signal cannot wait for the end of a long window. A checkpoint keeps the open window.
      // With elastic ranks, a checkpoint is saved only between steps.
      if (control_.stops_on_signal() && !trainer_.is_elastic()) break;
      const bool is_between_steps = window_batches_ == 0 && pending_step_.batches.empty();
      if (is_between_steps && (control_.stops_training() || control_.stops_epoch())) break;
    }
  } catch (const DataError& error) {
    if (has_batches || error.code() != "data.empty" || trainer_.state.global_step == 0) throw;
    trainer_.logger.warning(str("the stream has no row in epoch ", run_.loader->epoch(),
                                ": training stops at step ", trainer_.state.global_step, " of ",
                                run_.plan.max_steps));
    trainer_.control.should_training_stop = true;
  }
}

void Trainer::Run::after_step() {
  control_.request_due_after_step();
  agree();
  log_evaluate_save();
}

void Trainer::Run::end_substep() {
  trainer_.notify_callbacks(&TrainerCallback::on_substep_end);
  agree();
  if (!trainer_.control.should_save || trainer_.is_elastic()) return;
  trainer_.control.should_save = false;
  save();
}

void Trainer::Run::agree() {
  control_.agree({.is_saved = checkpoints_.is_saved(trainer_.state.global_step, window_batches_),
                  .is_writing = checkpoints_.is_writing()});
  if (checkpoints_.is_in_flight() && !control_.is_writing()) checkpoints_.finish();
}

void Trainer::Run::log_evaluate_save() {
  TrainerControl& control = trainer_.control;
  const bool logs = control.should_log && !run_.losses.is_logged(trainer_.state.global_step);
  control.should_log = false;
  if (logs) {
    log_loss();
    agree();
  }
  evaluation_due_ = std::exchange(control.should_evaluate, false) && trainer_.parts.eval_dataset;
  if (evaluation_due_ && !control_.stops_on_signal()) {
    const auto metrics = evaluate();
    evaluation_due_ = !metrics;
    if (metrics && run_.schedule.follows_metric())
      run_.schedule.after_evaluation(metric_for_best(args_, *metrics));
    const bool best = metrics && update_best_metric(args_, *metrics, trainer_.state);
    if (args_.save_strategy == SaveStrategy::best) control.should_save = best;
    agree();
  }
  control.should_evaluate = false;
  save_if_requested();
}

void Trainer::Run::log_loss() {
  const LossRecord::LoggedLosses since =
      run_.losses.take_since_log(trainer_.state.global_step, grad_norm_);
  Metrics logs = {
      {"loss", since.loss}, {"grad_norm", since.grad_norm}, {"learning_rate", learning_rate_}};
  if (since.nonfinite > 0) logs["nonfinite_losses"] = static_cast<double>(since.nonfinite);
  if (const std::int64_t skipped = trainer_.take_skipped_steps(); skipped > 0)
    logs["skipped_steps"] = static_cast<double>(skipped);
  trainer_.trainer.log(std::move(logs));
}

std::optional<Metrics> Trainer::Run::evaluate() {
  return trainer_.evaluate(trainer_.parts.eval_dataset, "eval", trainer_.ignored_in_evaluations,
                           [&] { return trainer_.control.stop_signal; });
}

// A report that cannot be written would end the run after its first steps.
void Trainer::Run::check_anatomy_file() const {
  if (args_.anatomy.empty() || args_.anatomy == "text" || trainer_.parts.on_anatomy) return;
  const auto file = std::filesystem::absolute(args_.anatomy);
  once(trainer_.group(), trainer_.accelerator.is_main_process(),
       [&] { check_writable_directory(file.parent_path()); });
}

void Trainer::Run::report_anatomy() {
  anatomy::Report report = anatomy_->report();
  anatomy_.reset();
  if (!trainer_.accelerator.is_main_process()) return;
  trainer_.for_each_callback(
      [&](TrainerCallback& each) { each.on_anatomy(trainer_.event(), report); });
  if (trainer_.parts.on_anatomy) return trainer_.parts.on_anatomy(report);
  add_roofs(report);
  if (args_.anatomy == "text") {
    std::cerr << '\n' << to_text(report);
    return;
  }
  write_report(args_.anatomy, report);
  trainer_.logger.info("wrote the anatomy of the first steps to " + args_.anatomy);
}

void Trainer::Run::write_hashes() {
  if (!run_.hashes) return;
  try {
    run_.hashes->write();
  } catch (const IoError& error) {
    trainer_.logger.warning(str("the hash chain was not written at step ",
                                trainer_.state.global_step, ": ", error.what()));
  }
}

void Trainer::Run::check_parameters() const {
  run_.parameters.check_unchanged(*trainer_.model, trainer_.state.global_step);
}

void Trainer::Run::report_nonfinite_loss(const LossRecord::NonfiniteLosses& bad) {
  const bool continues = bad.step == latest_nonfinite_step_ + 1;
  const bool stops = args_.stop_on_nonfinite_loss;
  latest_nonfinite_step_ = bad.step + bad.count - 1;
  const char* const rest = stops ? "" : "; until a loss is finite again, more are only counted";
  if (!continues || stops) trainer_.logger.warning(str(nonfinite_loss_text(bad), rest));
  if (stops) throw_nonfinite_loss(bad);
}

TrainOutput Trainer::Run::finish() {
  const double seconds = seconds_since(start_);
  TrainerState& state = trainer_.state;
  const double loss = run_.losses.mean();
  Metrics metrics = trainer_.final_metrics(
      {.seconds = seconds, .steps = state.global_step - started_at_step_, .loss = loss}, run_,
      work_);
  trainer_.memory.stop(MemoryTracker::Stage::train, metrics);
  broadcast_metrics(trainer_.group(), metrics);
  trainer_.trainer.log(metrics);
  metrics["epoch"] = state.epoch;
  trainer_.use_evaluated_weights();
  checkpoints_.finish();
  write_hashes();
  if (args_.load_best_model_at_end) trainer_.load_best_model();
  trainer_.notify_callbacks(&TrainerCallback::on_train_end);
  return {.global_step = state.global_step,
          .steps = state.global_step - started_at_step_,
          .stop_signal = control_.stop_signal(),
          .training_loss = loss,
          .metrics = metrics};
}

}  // namespace hasten
