// The steps of a run: the micro-batches of a window, the gradients, and the step of the optimizer.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/models/recomputation.h"
#include "hasten/optim/gradients.h"
#include "optim/gradient_clip.h"
#include "trainer/step_checks.h"
#include "trainer/training_run.h"

namespace hasten {

void Trainer::Run::add_to_step(RealRows rows, bool is_last_of_data) {
  if (run_.hashes) run_.hashes->add_rows(rows.batch, 0);
  pending_step_.items.push_back(rows.count > 0 ? trainer_.count_items(rows) : 0);
  pending_step_.inputs.push_back(
      trainer_.to_device(graphs_.pad_to_bucket(trainer_.unpadded_batch(rows.batch)), 0));
  pending_step_.batches.push_back(std::move(rows));
  if (is_last_of_data || std::ssize(pending_step_.batches) == args_.gradient_accumulation_steps)
    run_pending_step(std::exchange(pending_step_, {}));
}

void Trainer::Run::run_pending_step(const Impl::StepGraphs::Step& step) {
  current_ = &step.batches.back();
  memory_.set_rows(current_->rows);
  trainer_.notify_callbacks(&TrainerCallback::on_step_begin);
  for (std::size_t i = 0; i < step.batches.size(); ++i) {
    if (i > 0) trainer_.notify_callbacks(&TrainerCallback::on_substep_end);
    work_.count(step.batches[i], window_);
    window_.items += step.items[i];
  }
  const StepTotals totals = totals_of_window();
  bool replays = false;
  memory_.run(name_of_step(), [&] { replays = graphs_.ensure_graph(step); });
  // A graph also makes the optimizer's step.
  if (replays) trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
  memory_.run(name_of_step(), [&] {
    const bool still_replays = replays && graphs_.ensure_graph(step);  // after the callbacks
    grad_norm_ = still_replays ? graphs_.replay(step) : graphs_.compute_gradients(step);
  });
  if (!replays) {
    trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
    check_has_gradients();
  }
  learning_rate_ = run_.schedule.learning_rate();
  memory_.run(str("optimizer step ", trainer_.state.global_step + 1),
              [&] { run_.optimizer.step(); });
  end_step(totals);
  after_step();
}

void Trainer::Run::run_micro_batch(RealRows real, std::int64_t virtual_rank, bool ends_rank) {
  if (run_.hashes) run_.hashes->add_rows(real.batch, virtual_rank);
  AnyBatch batch = trainer_.to_device(trainer_.unpadded_batch(real.batch), batch_rows());
  current_ = &real;
  memory_.set_rows(real.rows);
  if (evaluates_closure_) {
    run_closure_step(batch, real);
    return after_step();
  }
  memory_.run(name_of_step(), [&] {
    const auto guard = trainer_.accelerator.accumulate(*trainer_.prepared);
    if (window_batches_++ == 0) trainer_.notify_callbacks(&TrainerCallback::on_step_begin);
    trainer_.use_trained_weights();
    const double items = real.count > 0 ? trainer_.count_items(real) : 0;
    const at::Tensor loss = training_step(batch, items);
    check_returned_loss(loss);
    if (items > 0) run_.losses.add(loss, items);
    window_.items += items;
  });
  work_.count(real, window_);
  if (ends_rank) end_virtual_rank();
  if (!trainer_.accelerator.sync_gradients()) return end_substep();
  run_optimizer_step();
  after_step();
}

void Trainer::Run::run_closure_step(AnyBatch& batch, RealRows& real) {
  trainer_.notify_callbacks(&TrainerCallback::on_step_begin);
  trainer_.use_trained_weights();
  const double items = real.count > 0 ? trainer_.count_items(real) : 0;
  work_.count(real, window_);
  window_.items += items;
  learning_rate_ = run_.schedule.learning_rate();
  std::optional<StepTotals> totals;  // unset before the first evaluation
  const auto evaluate_loss = [&] {
    run_.optimizer.zero_grad();
    const auto guard = trainer_.accelerator.accumulate(*trainer_.prepared);
    at::Tensor loss;
    memory_.run(name_of_step(), [&] { loss = training_step(batch, items); });
    check_returned_loss(loss);
    if (totals) return loss;
    if (items > 0) run_.losses.add(loss, items);
    totals = totals_of_window();
    if (args_.stop_on_nonfinite_loss) check_finite(*totals);
    return loss;
  };
  trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
  memory_.run(name_of_step(), [&] { run_.optimizer.step(evaluate_loss); });
  grad_norm_ = gradient_norm(run_.trained);
  end_step(*totals);
}

void Trainer::Run::run_optimizer_step() {
  const StepTotals totals = totals_of_window();
  if (args_.stop_on_nonfinite_loss) check_finite(totals);
  trainer_.accelerator.unscale_gradients();
  grad_norm_ = clip();
  trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
  check_has_gradients();
  learning_rate_ = run_.schedule.learning_rate();
  trainer_.use_trained_weights();  // a callback may have evaluated the model
  memory_.run(str("optimizer step ", trainer_.state.global_step + 1),
              [&] { run_.optimizer.step(); });
  if (args_.step_in_backward) grad_norm_ = run_.optimizer.norm_in_backward();
  end_step(totals);
}

at::Tensor Trainer::Run::training_step(AnyBatch& batch, double items) {
  try {
    return trainer_.trainer.training_step(batch, items);
  } catch (const std::exception& error) {
    trainer_.report_failed_rows(name_of_step(), *current_, error);
    throw;
  }
}

DeferredScalar Trainer::Run::clip() {
  return clip_gradients(run_.trained, run_.optimizer.unwrap(),
                        {.max_norm = args_.max_grad_norm,
                         .on_device = trainer_.traits().defers_scalar_reads,
                         .has_readers = callbacks_read_gradients()});
}

void Trainer::Run::check_returned_loss(const at::Tensor& loss) const {
  if (!loss.defined()) trainer_.check_loss(loss);  // throws
  trainer_.check_loss_shape(loss);
}

void Trainer::Run::check_has_gradients() const {
  if (args_.step_in_backward || trainer_.is_elastic() || trainer_.group().size() > 1) return;
  require_gradient(run_.trained, trainer_.state.global_step + 1);
}

void Trainer::Run::check_finite(const StepTotals& all) {
  const double loss = all.items > 0 ? all.loss / all.items : 0;
  if (std::isfinite(loss)) return;
  report_nonfinite_loss({.step = trainer_.state.global_step + 1, .count = 1, .loss = loss});
}

void Trainer::Run::end_virtual_rank() {
  window_.loss = run_.losses.step_sum();
  run_.losses.restore_open_sum(0);
  virtual_rank_totals_.push_back(std::exchange(window_, {}));
}

std::string Trainer::Run::name_of_step() const {
  return str("training step ", trainer_.state.global_step + 1);
}

StepTotals Trainer::Run::totals_of_window() {
  if (trainer_.is_elastic())
    return sum_over_virtual_ranks(trainer_.accelerator, std::exchange(virtual_rank_totals_, {}));
  window_.loss = run_.losses.step_sum();
  return sum_over(trainer_.group(), std::exchange(window_, {}));
}

void Trainer::Run::end_step(const StepTotals& totals) {
  trainer_.notify_callbacks(&TrainerCallback::on_optimizer_step);
  if (!run_.optimizer.step_was_skipped()) run_.schedule.after_step();
  run_.optimizer.zero_grad();
  ++trainer_.state.global_step;
  if (args_.torch_empty_cache_steps &&
      trainer_.state.global_step % *args_.torch_empty_cache_steps == 0)
    empty_device_cache();
  trainer_.state.epoch = epochs_seen();
  close_window(totals);
  if (run_.hashes && run_.hashes->is_due(trainer_.state.global_step)) {
    run_.hashes->add_link(trainer_.state.global_step, run_.losses.read_latest(), *trainer_.model,
                          run_.optimizer.unwrap(), run_.parameters.by_name());
    write_hashes();
  }
  if (trainer_.state.global_step == started_at_step_ + 1) check_parameters();
  trainer_.notify_callbacks(&TrainerCallback::on_step_end, run_.losses.latest());
  if (anatomy_ && anatomy_->finished()) report_anatomy();
}

void Trainer::Run::close_window(const StepTotals& all) {
  window_batches_ = 0;
  trainer_.state.total_flos += all.flos;
  trainer_.state.num_input_tokens_seen += static_cast<std::int64_t>(all.tokens);
  run_.losses.close(all, trainer_.state.global_step);
}

bool Trainer::Run::callbacks_read_gradients() const {
  return std::any_of(trainer_.parts.callbacks.begin(), trainer_.parts.callbacks.end(),
                     [](const auto& callback) { return callback->reads_gradients(); });
}

double Trainer::Run::epochs_seen() const {
  const double batches = static_cast<double>(run_.plan.batches_per_epoch);
  return static_cast<double>(run_.loader->epoch()) +
         static_cast<double>(run_.loader->batch() + 1) / batches;
}

std::int64_t Trainer::Run::batch_rows() const {
  return rows_of_rank(args_, args_.per_device_train_batch_size, trainer_.data_ranks());
}

ExplainableStep Trainer::Run::dry_retry() {
  return {.step = [this](std::int64_t rows) { dry_step(rows); },
          .parameters = run_.trained,
          .anatomy =
              [this](const AnatomyOptions& options) {
                anatomy_.reset();
                return trainer_.accelerator.anatomy(options);
              },
          .memory_saving_changes =
              args_.activation_checkpointing
                  ? std::vector<MemorySavingChange>{}
                  : std::vector<MemorySavingChange>{{.name = "with activation_checkpointing",
                                                     .change = [this] {
                                                       set_recomputation(*trainer_.model,
                                                                         Recomputation{});
                                                     }}}};
}

void Trainer::Run::dry_step(std::int64_t rows) {
  const std::int64_t batches = std::min<std::int64_t>(2, args_.gradient_accumulation_steps);
  trainer_.accelerator.free_memory();
  trainer_.accelerator.set_gradient_accumulation_steps(batches);
  trainer_.use_trained_weights();
  const RealRows some = first_rows(*current_, rows);
  for (std::int64_t i = 0; i < batches; ++i) {
    AnyBatch batch = trainer_.to_device(trainer_.unpadded_batch(some.batch), batch_rows());
    const auto guard = trainer_.accelerator.accumulate(*trainer_.prepared);
    (void)trainer_.trainer.training_step(batch, static_cast<double>(rows));
  }
  trainer_.accelerator.unscale_gradients();
  (void)clip();
  run_.optimizer.step();
  run_.optimizer.zero_grad();
}

}  // namespace hasten
