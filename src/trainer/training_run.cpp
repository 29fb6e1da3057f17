// One call of Trainer::train: it makes the parts, resumes a run, makes the steps, and ends the run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/models/recomputation.h"
#include "hasten/optim/gradients.h"
#include "optim/gradient_clip.h"
#include "trainer/agreement.h"
#include "trainer/batch_size_search.h"
#include "trainer/best_metric.h"
#include "trainer/model_setup.h"
#include "trainer/resume.h"
#include "trainer/run_checkpoints.h"
#include "trainer/run_control.h"
#include "trainer/run_parts.h"
#include "trainer/step_checks.h"
#include "trainer/step_graphs.h"
#include "trainer/step_memory.h"
#include "trainer/work_counter.h"

namespace hasten {
namespace {

// Restores the arguments that a restart inside of a call of train() changes: the next call is a run
// of its own.
class StartArgumentsScope {
 public:
  explicit StartArgumentsScope(TrainingArguments& args)
      : args_(args),
        resume_from_checkpoint_(args.resume_from_checkpoint),
        overwrite_output_dir_(args.overwrite_output_dir) {}
  StartArgumentsScope(const StartArgumentsScope&) = delete;
  StartArgumentsScope& operator=(const StartArgumentsScope&) = delete;
  ~StartArgumentsScope() {
    args_.resume_from_checkpoint.swap(resume_from_checkpoint_);
    args_.overwrite_output_dir = overwrite_output_dir_;
  }

 private:
  TrainingArguments& args_;
  std::string resume_from_checkpoint_;
  const bool overwrite_output_dir_;
};

// Releases the lock on output_dir at the end of a call of train().
class OutputLockScope {
 public:
  explicit OutputLockScope(std::shared_ptr<FolderLock>& lock) : lock_(lock) {}
  OutputLockScope(const OutputLockScope&) = delete;
  OutputLockScope& operator=(const OutputLockScope&) = delete;
  ~OutputLockScope() { lock_.reset(); }

 private:
  std::shared_ptr<FolderLock>& lock_;
};

}  // namespace

class Trainer::Run {
 public:
  explicit Run(Impl& trainer)
      : trainer_(trainer),
        args_(trainer.args),
        run_(trainer,
             [this](const LossRecord::NonfiniteLosses& bad) { report_nonfinite_loss(bad); }),
        control_(trainer, run_.plan),
        checkpoints_(trainer, run_),
        memory_(trainer),
        graphs_(trainer, run_),
        work_(trainer.model_traits(), args_.include_num_input_tokens_seen, trainer.logger),
        setup_(trainer, run_.optimizer.unwrap()) {}

  // True if a training step, and not an evaluation, ran out of memory.
  bool ran_out_of_memory() const { return memory_.ran_out(); }
  // Returns the newest checkpoint that this run has saved, or an empty path if it has saved none. A
  // collective.
  std::filesystem::path newest_checkpoint() {
    checkpoints_.finish();
    const std::int64_t step = checkpoints_.last_saved();
    return step > started_at_step_ ? checkpoints_.folder_of(step) : std::filesystem::path();
  }
  // The checkpoint that this run continues, or an empty path.
  const std::filesystem::path& resumed_checkpoint() const { return resumed_.folder; }

  TrainOutput train() {
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

 private:
  TrainOutput train_to_end() {
    checkpoints_.prepare_output();
    if (args_.eval_strategy != IntervalStrategy::no)
      (void)trainer_.trainer.get_eval_dataloader(trainer_.parts.eval_dataset);
    begin();
    TrainerState& state = trainer_.state;
    const bool nothing_left = state.global_step >= run_.plan.max_steps;
    if (nothing_left) report_nothing_left();
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

  // Sets the state at the start of the run, or the state of the checkpoint that it continues.
  void begin() {
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

  void report_nothing_left() const {
    trainer_.logger.warning(str("nothing is left to train: the run is at step ",
                                trainer_.state.global_step, " of ", run_.plan.max_steps));
  }

  // Runs from the position of the loader to the end of its epoch.
  void run_epoch() {
    control_.begin_epoch();
    const std::int64_t number = run_.loader->epoch();
    trainer_.notify_callbacks(&TrainerCallback::on_epoch_begin);
    // The model is prepared while its weights are those that training begins with.
    if (!trainer_.prepared)
      trainer_.prepared.emplace(std::get<0>(trainer_.accelerator.prepare(trainer_.model)));
    if (!resumed_.windows.empty())
      trainer_.restore_window(std::exchange(resumed_.windows, {}), resumed_.loss_scale,
                              resumed_.folder);
    train_on_epoch();
    check_parameters();
    if (control_.stops_epoch()) run_.loader->set_epoch(number + 1);
    trainer_.notify_callbacks(&TrainerCallback::on_epoch_end);
    control_.request_due_after_epoch();
    agree();
    log_evaluate_save();
  }

  // Trains on the rest of the pass. If a stream has no more rows after the first pass, the run
  // ends, as in the Hugging Face Trainer.
  void train_on_epoch() {
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

  // True if the next batch belongs to a step that a graph may repeat. This is false while an
  // anatomy records steps, and in the rest of a window that a checkpoint has begun.
  bool may_use_graph() const { return graphs_.is_on() && !anatomy_ && window_batches_ == 0; }

  // Waits for all batches of a step, because a graph runs them together. They are copied to the
  // device now, while it still computes the step before.
  void add_to_step(RealRows rows, bool is_last_of_data) {
    if (run_.hashes) run_.hashes->add_rows(rows.batch, 0);
    pending_step_.items.push_back(rows.count > 0 ? trainer_.count_items(rows) : 0);
    pending_step_.inputs.push_back(trainer_.to_device(graphs_.pad_to_bucket(rows.batch), 0));
    pending_step_.batches.push_back(std::move(rows));
    if (is_last_of_data || std::ssize(pending_step_.batches) == args_.gradient_accumulation_steps)
      run_pending_step(std::exchange(pending_step_, {}));
  }

  void run_pending_step(const Impl::StepGraphs::Step& step) {
    current_ = &step.batches.back();
    memory_.set_rows(std::max<std::int64_t>(1, current_->count));
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

  // `virtual_rank` is the batch's virtual rank, counted from 0 in this process. `ends_rank` says
  // whether this is its last batch of the step. Without elastic ranks they are 0 and false.
  void run_micro_batch(RealRows real, std::int64_t virtual_rank, bool ends_rank) {
    if (run_.hashes) run_.hashes->add_rows(real.batch, virtual_rank);
    AnyBatch batch = trainer_.to_device(trainer_.unpadded_batch(real.batch), batch_rows());
    current_ = &real;
    memory_.set_rows(std::max<std::int64_t>(1, real.count));
    if (evaluates_closure_) {
      run_closure_step(batch, real);
      return after_step();
    }
    memory_.run(name_of_step(), [&] {
      const auto guard = trainer_.accelerator.accumulate(*trainer_.prepared);
      if (window_batches_++ == 0) trainer_.notify_callbacks(&TrainerCallback::on_step_begin);
      trainer_.use_trained_weights();
      const double items = real.count > 0 ? trainer_.count_items(real) : 0;
      const at::Tensor loss = trainer_.trainer.training_step(batch, items);
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

  // Checks the loss that training_step() returns, which a class may override. The loss is only
  // logged, so it may be detached: the gradients are computed already.
  void check_returned_loss(const at::Tensor& loss) const {
    if (!loss.defined()) trainer_.check_loss(loss);  // throws
    trainer_.check_loss_shape(loss);
  }

  // Returns a step that explains why memory ran out. It is made in a fork of this process.
  ExplainableStep dry_retry() {
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

  // Makes an optimizer step with the first rows of the batch. It uses a second micro-batch if there
  // is one: that batch finds gradients, so it needs the memory that all later ones need.
  void dry_step(std::int64_t rows) {
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
    (void)clip_gradients(run_.trained, run_.optimizer.unwrap(),
                         {.max_norm = args_.max_grad_norm,
                          .on_device = trainer_.traits().defers_scalar_reads,
                          .has_readers = callbacks_read_gradients()});
    run_.optimizer.step();
    run_.optimizer.zero_grad();
  }

  // Returns the number of rows of a full batch of this process.
  std::int64_t batch_rows() const {
    return rows_of_rank(args_, args_.per_device_train_batch_size, trainer_.data_ranks());
  }
  std::string name_of_step() const { return str("training step ", trainer_.state.global_step + 1); }

  // Keeps the sums of a virtual rank, which are added up along a tree.
  void end_virtual_rank() {
    window_.loss = run_.losses.step_sum();
    run_.losses.restore_open_sum(0);
    virtual_rank_totals_.push_back(std::exchange(window_, {}));
  }

  // Does what is due after an optimizer step.
  void after_step() {
    control_.request_due_after_step();
    agree();
    log_evaluate_save();
  }

  // Makes a step of an optimizer that computes the loss of the batch several times. The loss of the
  // step is the first one. The norm is that of the last gradients.
  void run_closure_step(AnyBatch& batch, RealRows& real) {
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
      memory_.run(name_of_step(), [&] { loss = trainer_.trainer.training_step(batch, items); });
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

  // A callback may ask for a checkpoint inside the window. Logs and evaluations wait for the step.
  // With elastic ranks, checkpoints wait too.
  void end_substep() {
    trainer_.notify_callbacks(&TrainerCallback::on_substep_end);
    agree();
    if (!trainer_.control.should_save || trainer_.is_elastic()) return;
    trainer_.control.should_save = false;
    save();
  }

  // Continues the sums of the window in which the checkpoint was saved.
  void restore_totals() {
    const auto rank = static_cast<std::size_t>(trainer_.group().rank());
    if (rank >= resumed_.windows.size()) return;
    const WindowPosition& own = resumed_.windows[rank];
    window_batches_ = own.micro_batches;
    window_ = {.items = own.items, .tokens = own.tokens, .flos = own.flos};
    run_.losses.restore_open_sum(own.loss);
  }

  void save() {
    checkpoints_.save(window_, window_batches_);
    agree();
  }

  void run_optimizer_step() {
    const StepTotals totals = totals_of_window();
    if (args_.stop_on_nonfinite_loss) check_finite(totals);
    trainer_.accelerator.unscale_gradients();
    grad_norm_ = clip_gradients(run_.trained, run_.optimizer.unwrap(),
                                {.max_norm = args_.max_grad_norm,
                                 .on_device = trainer_.traits().defers_scalar_reads,
                                 .has_readers = callbacks_read_gradients()});
    trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
    check_has_gradients();
    learning_rate_ = run_.schedule.learning_rate();
    trainer_.use_trained_weights();  // a callback may have evaluated the model
    memory_.run(str("optimizer step ", trainer_.state.global_step + 1),
                [&] { run_.optimizer.step(); });
    if (args_.step_in_backward) grad_norm_ = run_.optimizer.norm_in_backward();
    end_step(totals);
  }

  void end_step(const StepTotals& totals) {
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

  // An error does not end the run, as with a checkpoint: the next call writes these links as well.
  void write_hashes() {
    if (!run_.hashes) return;
    try {
      run_.hashes->write();
    } catch (const IoError& error) {
      trainer_.logger.warning(str("the hash chain was not written at step ",
                                  trainer_.state.global_step, ": ", error.what()));
    }
  }

  // Returns the sums of the window over all processes.
  StepTotals totals_of_window() {
    if (trainer_.is_elastic())
      return sum_over_virtual_ranks(trainer_.accelerator, std::exchange(virtual_rank_totals_, {}));
    window_.loss = run_.losses.step_sum();
    return sum_over(trainer_.group(), std::exchange(window_, {}));
  }

  void close_window(const StepTotals& all) {
    window_batches_ = 0;
    trainer_.state.total_flos += all.flos;
    trainer_.state.num_input_tokens_seen += static_cast<std::int64_t>(all.tokens);
    run_.losses.close(all, trainer_.state.global_step);
  }

  bool callbacks_read_gradients() const {
    return std::any_of(trainer_.parts.callbacks.begin(), trainer_.parts.callbacks.end(),
                       [](const auto& callback) { return callback->reads_gradients(); });
  }

  double epochs_seen() const {
    const double batches = static_cast<double>(run_.plan.batches_per_epoch);
    return static_cast<double>(run_.loader->epoch()) +
           static_cast<double>(run_.loader->batch() + 1) / batches;
  }

  // The optimizer would not train a parameter that has been added or replaced since the start.
  void check_parameters() const {
    run_.parameters.check_unchanged(*trainer_.model, trainer_.state.global_step);
  }

  void check_has_gradients() const {
    if (args_.step_in_backward || trainer_.is_elastic() || trainer_.group().size() > 1) return;
    require_gradient(run_.trained, trainer_.state.global_step + 1);
  }

  // Throws before the step, so that the weights are still those of the last finite loss.
  void check_finite(const StepTotals& all) const {
    const double loss = all.items > 0 ? all.loss / all.items : 0;
    if (std::isfinite(loss)) return;
    report_nonfinite_loss({.step = trainer_.state.global_step + 1, .count = 1, .loss = loss});
  }

  void report_nonfinite_loss(const LossRecord::NonfiniteLosses& bad) const {
    trainer_.logger.warning(nonfinite_loss_text(bad));
    if (args_.stop_on_nonfinite_loss) throw_nonfinite_loss(bad);
  }

  void agree() {
    control_.agree({.is_saved = checkpoints_.is_saved(trainer_.state.global_step, window_batches_),
                    .is_writing = checkpoints_.is_writing()});
    if (checkpoints_.is_in_flight() && !control_.is_writing()) checkpoints_.finish();
  }

  void log_evaluate_save() {
    TrainerControl& control = trainer_.control;
    const bool logs = control.should_log && !run_.losses.is_logged(trainer_.state.global_step);
    control.should_log = false;
    if (logs) {
      log_loss();
      agree();
    }
    if (control.should_evaluate && trainer_.parts.eval_dataset && !control_.stops_on_signal()) {
      control.should_evaluate = false;
      const auto metrics = evaluate();
      if (metrics && run_.schedule.follows_metric())
        run_.schedule.after_evaluation(metric_for_best(args_, *metrics));
      const bool best = metrics && update_best_metric(args_, *metrics, trainer_.state);
      if (args_.save_strategy == SaveStrategy::best) control.should_save = best;
      agree();
    }
    control.should_evaluate = false;
    if (control.should_save) {
      control.should_save = false;
      save();
    }
  }

  void log_loss() {
    const LossRecord::LoggedLosses since =
        run_.losses.take_since_log(trainer_.state.global_step, grad_norm_);
    Metrics logs = {
        {"loss", since.loss}, {"grad_norm", since.grad_norm}, {"learning_rate", learning_rate_}};
    if (since.nonfinite > 0) logs["nonfinite_losses"] = static_cast<double>(since.nonfinite);
    if (const std::int64_t skipped = trainer_.take_skipped_steps(); skipped > 0)
      logs["skipped_steps"] = static_cast<double>(skipped);
    trainer_.trainer.log(std::move(logs));
  }

  // Returns nullopt if a signal stops it: metrics of only some rows would mislead.
  std::optional<Metrics> evaluate() {
    return trainer_.evaluate(trainer_.parts.eval_dataset, "eval", trainer_.ignored_in_evaluations,
                             [&] { return trainer_.control.stop_signal; });
  }

  void report_anatomy() {
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

  TrainOutput finish() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
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

  using Clock = std::chrono::steady_clock;

  Impl& trainer_;
  const TrainingArguments& args_;
  Impl::RunParts run_;
  Impl::RunControl control_;
  Impl::RunCheckpoints checkpoints_;
  Impl::StepMemory memory_;
  Impl::StepGraphs graphs_;
  Impl::StepGraphs::Step pending_step_;  // the batches that wait for their step
  WorkCounter work_;
  std::optional<Anatomy> anatomy_;  // records the first steps

  const RealRows* current_ = nullptr;  // the micro-batch

  Clock::time_point start_;
  std::int64_t started_at_step_ = 0;
  std::int64_t window_batches_ = 0;  // the batches of the open accumulation window
  StepTotals window_;                // what this process contributes to it
  // With elastic ranks, what each virtual rank of this process contributes to it.
  std::vector<StepTotals> virtual_rank_totals_;
  Impl::Resume::PendingState resumed_;  // is restored once the model is prepared
  DeferredScalar grad_norm_;            // the norm of the last step
  double learning_rate_ = 0;
  const bool evaluates_closure_ =
      dynamic_cast<torch::optim::LBFGS*>(&run_.optimizer.unwrap()) != nullptr;
  Impl::ModelSetup setup_;  // reset first when the run ends
};

TrainOutput Trainer::train(const IgnoreKeys& ignore_keys_for_eval) {
  impl_->ignored_in_evaluations = ignore_keys_for_eval;
  const StartArgumentsScope start(impl_->args);
  // It outlives the run, whose last save may still be in the background.
  const OutputLockScope locked(impl_->output_lock);
  Impl::RunCheckpoints::lock_output(*impl_);
  // Only once: after that, the search of the batch size decides where the run continues.
  Impl::Resume::continue_if_restarted(*impl_);
  Impl::RunCheckpoints::refuse_output_in_use(*impl_);
  if (!impl_->args.auto_find_batch_size) return Run(*impl_).train();
  BatchSizeSearch search(*impl_);
  while (true) {
    std::optional<std::filesystem::path> checkpoint;
    {
      Run run(*impl_);
      try {
        return run.train();
      } catch (const MemoryError&) {
        if (!run.ran_out_of_memory()) throw;
        checkpoint = search.restart_point(run.newest_checkpoint(), run.resumed_checkpoint());
        if (!checkpoint || !search.halve()) throw;
      }
    }
    search.restart(*checkpoint);
  }
}

}  // namespace hasten
