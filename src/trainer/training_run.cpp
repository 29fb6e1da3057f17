// One call of Trainer::train: plan, resume, loop, finish.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>

#include "anatomy/textbook.h"
#include "base/signal_text.h"
#include "checkpoint/random_state.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/device/memory.h"
#include "hasten/formats/weights.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/once.h"
#include "trainer/agreement.h"
#include "trainer/batch_size_search.h"
#include "trainer/loss_record.h"
#include "trainer/optimizer_of.h"
#include "trainer/plan.h"
#include "trainer/resume_checks.h"
#include "trainer/saved_model.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

std::string names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename().string());
  return join(names, ", ");
}

}  // namespace

class Trainer::Run {
 public:
  explicit Run(Impl& trainer)
      : trainer_(trainer),
        args_(trainer.args),
        parameters_(trained_parameters()),
        loader_(std::get<0>(trainer.accelerator.prepare(make_loader()))),
        losses_(args_, trainer.group(), trainer.accelerator.device(),
                trainer.traits().reads_scalars_late && !args_.stop_on_nonfinite_loss,
                [this](const LossRecord::Nonfinite& bad) { report_nonfinite_loss(bad); }),
        plan_(plan_of(args_, trainer.parts.train_dataset.size(), loader_.size(),
                      trainer.group().size())),
        optimizer_(std::get<0>(trainer.accelerator.prepare(make_optimizer()))),
        schedule_(make_schedule()) {
    for (const auto& [name, parameter] : parameters_) {
      if (parameter.requires_grad()) trained_.push_back(parameter);
    }
    // Sparse gradients are exact in hasten::AdamW. Over an accumulation window dense ones add up
    // faster, and some devices have no sparse tensors.
    set_sparse_gradients(dynamic_cast<AdamW*>(&optimizer_.unwrap()) != nullptr &&
                         args_.gradient_accumulation_steps == 1 &&
                         trainer_.traits().has_sparse_tensors);
    trainer_.averaging = dynamic_cast<AveragesWeights*>(&optimizer_.unwrap());
    if (trainer_.averaging != nullptr) check_rate_of_averaging();
    if (args_.neftune_noise_alpha.value_or(0) > 0) set_embedding_noise(*args_.neftune_noise_alpha);
  }

  ~Run() {
    set_sparse_gradients(false);  // other optimizers do not take them
    trainer_.averaging = nullptr;
    if (TrainingTraits* const traits = traits_of(*trainer_.model)) traits->set_embedding_noise(0);
    trainer_.prepared.reset();
  }

  // True if a training step, and not an evaluation, ran out of memory.
  bool ran_out_of_memory() const { return ran_out_of_memory_; }
  // The newest checkpoint that this run has saved; empty if there is none.
  fs::path saved_checkpoint() const {
    return last_saved_ > started_at_step_
               ? fs::path(args_.output_dir) / str("checkpoint-", last_saved_)
               : fs::path();
  }

  TrainOutput train() {
    once(trainer_.group(), trainer_.writes(), [&] { check_output(); });
    if (args_.eval_strategy != IntervalStrategy::no)
      (void)trainer_.trainer.get_eval_dataloader(trainer_.parts.eval_dataset);
    TrainerState& state = trainer_.state;
    state = trainer_.new_state();
    trainer_.control = TrainerControl{};
    if (!args_.resume_from_checkpoint.empty()) resume();
    state.max_steps = plan_.max_steps;
    state.num_train_epochs = plan_.epochs;
    state.logging_steps = static_cast<double>(plan_.logging_steps);
    state.eval_steps = static_cast<double>(plan_.eval_steps);
    state.save_steps = static_cast<double>(plan_.save_steps);
    state.train_batch_size = args_.per_device_train_batch_size;

    trainer_.accelerator.free_memory();  // drops windows of a run that threw
    optimizer_.zero_grad();
    start_ = Clock::now();
    started_at_step_ = state.global_step;
    trainer_.model->train();
    trainer_.notify_callbacks(&TrainerCallback::on_train_begin);
    agree_on_control();
    if (!args_.anatomy.empty())
      anatomy_.emplace(trainer_.accelerator.anatomy({.steps = args_.anatomy_steps}));
    const bool nothing_left = state.global_step >= plan_.max_steps;
    if (nothing_left) report_nothing_left();
    if (args_.eval_on_start && trainer_.parts.eval_dataset && !nothing_left && !stops_on_signal()) {
      (void)evaluate();
      agree_on_control();
    }
    while (state.global_step < plan_.max_steps && !stops_training() &&
           loader_->epoch() < plan_.epochs)
      epoch();
    if (anatomy_) report_anatomy();  // the run had fewer steps
    return finish();
  }

 private:
  ParameterNames trained_parameters() const {
    ParameterNames parameters = parameters_of(*trainer_.model);
    const bool any = std::any_of(parameters.begin(), parameters.end(),
                                 [](const auto& each) { return each.second.requires_grad(); });
    if (!any) {
      throw UsageError(
          "trainer.no-parameters",
          {.what = "train()",
           .got = parameters.empty() ? "a module without parameters"
                                     : "a module whose parameters all have requires_grad false",
           .expected = "a parameter to train",
           .hint = "register the layers of the module with register_module, and its own tensors "
                   "with register_parameter"});
    }
    return parameters;
  }

  Loader<TrainerBatch> make_loader() const {
    if (!trainer_.parts.train_dataset)
      throw UsageError(
          "trainer.no-train-data",
          {.what = "train()", .got = "no training data", .hint = "pass train_dataset"});
    return trainer_.trainer.get_train_dataloader();
  }

  std::unique_ptr<torch::optim::Optimizer> make_optimizer() const {
    trainer_.num_training_steps = plan_.max_steps;
    return trainer_.trainer.create_optimizer();
  }

  // A schedule of the step, or one that follows evaluations.
  struct Schedule {
    std::unique_ptr<LambdaLR> by_step;
    std::unique_ptr<MetricScheduler> by_metric;

    double learning_rate() const {
      return by_step ? by_step->get_last_lr()[0] : by_metric->get_last_lr()[0];
    }
  };

  Schedule make_schedule() {
    Schedule schedule;
    if (!follows_metric(args_.lr_scheduler_type)) {
      schedule.by_step = trainer_.trainer.create_scheduler(optimizer_.unwrap(), plan_.max_steps);
      return schedule;
    }
    if (!trainer_.parts.eval_dataset) {
      throw UsageError("trainer.no-eval-data",
                       {.what = str("lr_scheduler_type ", name_of(args_.lr_scheduler_type)),
                        .got = "no evaluation data",
                        .expected = "evaluations, whose metric the learning rate follows",
                        .hint = "pass eval_dataset (--eval_data), or choose another schedule"});
    }
    schedule.by_metric = trainer_.trainer.create_metric_scheduler(optimizer_.unwrap());
    return schedule;
  }

  void check_rate_of_averaging() const {
    if (args_.lr_scheduler_type == SchedulerType::constant) return;
    trainer_.logger.warning(str(
        "optim ", name_of(args_.optim),
        " takes the mean of the weights instead of lowering the "
        "learning rate, and lr_scheduler_type ",
        name_of(args_.lr_scheduler_type),
        " changes the rate as well. Use --lr_scheduler_type constant; warmup_steps still apply"));
  }

  void set_embedding_noise(double alpha) {
    TrainingTraits* const traits = traits_of(*trainer_.model);
    if (traits != nullptr && traits->set_embedding_noise(alpha)) return;
    throw ConfigError("trainer.embedding-noise",
                      {.what = str("neftune_noise_alpha ", alpha),
                       .got = "a model that does not take noise in its embeddings",
                       .expected = "a model of hasten, or one that overrides "
                                   "TrainingTraits::set_embedding_noise",
                       .hint = "leave out neftune_noise_alpha"});
  }

  void set_sparse_gradients(bool sparse) {
    if (TrainingTraits* const traits = traits_of(*trainer_.model))
      traits->set_sparse_gradients(sparse);
  }

  // Throws if a parameter has been added, replaced or removed since the start: the optimizer would
  // not train it.
  void check_parameters() const {
    const ParameterNames now = parameters_of(*trainer_.model);
    const auto throw_changed = [&](const std::string& name, const std::string& change) {
      throw UsageError(
          "trainer.parameters-changed",
          {.what = str("parameter ", name, " at step ", trainer_.state.global_step),
           .got = change,
           .expected = "the parameters that the module had when train() was called",
           .hint = "create all parameters in the module's constructor, and change their values in "
                   "place, with copy_()"});
    };
    for (const auto& [name, parameter] : now) {
      const auto before = parameters_.find(name);
      if (before == parameters_.end()) throw_changed(name, "a new parameter");
      if (!before->second.is_same(parameter)) throw_changed(name, "another tensor");
    }
    for (const auto& [name, parameter] : parameters_) {
      if (!now.contains(name)) throw_changed(name, "a module without it");
    }
  }

  void check_output() const {
    const fs::path folder = args_.output_dir;
    check_writable_directory(folder);
    remove_unfinished_saves(folder);
    if (args_.save_strategy != SaveStrategy::no)
      check_free_space(folder, checkpoint_bytes(), "a checkpoint");
    if (!args_.resume_from_checkpoint.empty()) return;
    if (!args_.overwrite_output_dir && !checkpoints(folder).empty()) {
      throw ConfigError("trainer.output-in-use",
                        {.what = "output_dir " + folder.string(),
                         .got = "the checkpoints of another run",
                         .expected = "an empty or new folder",
                         .hint = "resume with --resume_from_checkpoint true, choose another "
                                 "folder, or start over with --overwrite_output_dir"});
    }
    if (args_.overwrite_output_dir) {
      for (const auto& all : {checkpoints(folder), abandoned_checkpoints(folder)}) {
        for (const fs::path& old : all) remove_directory(old);
      }
    }
  }

  // The bytes of the weights and of what the optimizer keeps for each of them.
  std::uintmax_t checkpoint_bytes() const {
    std::uintmax_t weights = 0, trained = 0;
    for (const auto& [name, parameter] : parameters_) weights += parameter.nbytes();
    for (const at::Tensor& parameter : trained_) trained += parameter.nbytes();
    const auto states = anatomy::textbook_states(optimizer_.unwrap());
    if (!states || args_.save_only_model) return weights;
    const double kept = states->bytes / sizeof(float);
    return weights + static_cast<std::uintmax_t>(kept * static_cast<double>(trained));
  }

  // Returns the same verified folder in all processes, whatever another process may be writing.
  fs::path folder_to_resume() const {
    return broadcast_from_main(trainer_.group(), [&]() -> std::string {
      if (args_.resume_from_checkpoint == "true") {
        const auto report = [&](const std::string& damage) { trainer_.logger.warning(damage); };
        return recover_last_checkpoint(args_.output_dir, report).string();
      }
      check_is_resumable(args_.resume_from_checkpoint);
      verify_checkpoint(args_.resume_from_checkpoint);
      return args_.resume_from_checkpoint;
    });
  }

  static void check_is_resumable(const fs::path& folder) {
    if (has_training_state(folder) || fs::exists(folder / kManifestFile)) return;
    throw_no_training_state(folder);
  }

  [[noreturn]] static void throw_no_training_state(const fs::path& folder) {
    throw ConfigError(
        "trainer.no-training-state",
        {.what = "resume_from_checkpoint " + folder.string(),
         .got = "a folder without training_position.json",
         .expected = "a checkpoint with the optimizer's state",
         .hint =
             "a folder that save_only_model or the Hugging Face Trainer saved cannot be resumed: "
             "pass it as --model to start a new run"});
  }

  void resume() {
    const fs::path folder = folder_to_resume();
    if (folder.empty()) {
      throw ConfigError(
          "trainer.no-checkpoint",
          {.what = "resume_from_checkpoint true",
           .got = "no complete checkpoint in " + args_.output_dir,
           .hint = "start without resume_from_checkpoint, or give it the folder of a checkpoint"});
    }
    if (!has_training_state(folder)) throw_no_training_state(folder);
    const CheckpointToResume checkpoint(folder);
    TrainerState before = checkpoint.state;
    const TrainingPosition& position = checkpoint.position;
    check_resumable(checkpoint, args_, trainer_.group().size(),
                    trainer_.parts.train_dataset.size());
    const std::vector<std::string> missing = load_model_files(*trainer_.model, folder);
    if (!missing.empty()) {
      throw DataError("trainer.incomplete-weights", {.what = folder.string(),
                                                     .got = "no tensor " + missing.front(),
                                                     .expected = "every weight of the model"});
    }
    if (!load_training_state(folder, optimizer_.unwrap(), parameters_, trainer_.group().rank())) {
      trainer_.logger.info(
          str("the checkpoint is from ", position.num_processes, " processes: rank ",
              trainer_.group().rank(), " has no saved random state and starts with a new one"),
          {.main_process_only = false});
    }
    restore_schedule(position);
    loader_->load_state(
        args_.ignore_data_skip
            ? LoaderState{.seed = position.loader.seed, .epoch = position.loader.epoch, .batch = 0}
            : position.loader);
    find_best_checkpoint(before, folder);
    last_logged_ = last_saved_ = before.global_step;
    if (position.losses) {
      losses_.restore({.of_run = position.losses->of_run, .since_log = position.losses->since_log});
      last_logged_ = position.losses->last_logged_step;
    }
    for (const auto& callback : trainer_.parts.callbacks) {
      const auto found = before.callbacks.find(callback->name());
      if (found != before.callbacks.end()) callback->restore(found->second);
    }
    trainer_.state = std::move(before);
    trainer_.note_process(trainer_.state);
    trainer_.logger.info(
        str("resuming from ", folder.string(), " at step ", trainer_.state.global_step));
    report_changes(checkpoint);
  }

  // A schedule of another kind than that of the checkpoint begins with the rate of the arguments;
  // report_changes() says so.
  void restore_schedule(const TrainingPosition& position) {
    if (schedule_.by_step) return schedule_.by_step->set_last_step(position.scheduler_step);
    const auto& before = position.metric_schedule;
    if (!before || before->type != name_of(args_.lr_scheduler_type)) return;
    try {
      schedule_.by_metric->set_state(before->state);
    } catch (const std::out_of_range&) {
      throw DataError("checkpoint.position", {.what = "metric_schedule in training_position.json",
                                              .got = "a state that lacks a number",
                                              .expected = "the state of " + before->type,
                                              .hint = "resume from another checkpoint"});
    }
  }

  // The best checkpoint may have been moved together with the others.
  void find_best_checkpoint(TrainerState& state, const fs::path& resumed) const {
    const fs::path best = state.best_model_checkpoint;
    if (best.empty() || fs::is_directory(best)) return;
    const fs::path beside = resumed.parent_path() / best.filename();
    const bool moved = fs::is_directory(beside);
    state.best_model_checkpoint = moved ? beside.string() : "";
    if (!moved)
      trainer_.logger.warning("the best checkpoint so far no longer exists: " + best.string());
  }

  void report_changes(const CheckpointToResume& checkpoint) {
    for (const std::string& change : changed_arguments(checkpoint, args_))
      trainer_.logger.warning(change);
    if (!trainer_.accelerator.is_main_process()) return;
    const auto& before = checkpoint.position.data;
    if (before && !before->sample.empty() && !args_.ignore_data_skip) {
      const std::string now = data_identity().sample;
      if (!now.empty() && now != before->sample) {
        trainer_.logger.warning(
            "the training data or their order differ from those of the checkpoint: some rows of "
            "this epoch may be used twice and others not at all. To avoid this, start the epoch "
            "again with --ignore_data_skip");
      }
    }
    report_later_checkpoints();
  }

  void report_later_checkpoints() const {
    if (args_.save_strategy == SaveStrategy::no || trainer_.state.global_step >= plan_.max_steps)
      return;
    std::vector<fs::path> later;
    for (const fs::path& folder : checkpoints(args_.output_dir)) {
      if (step_of_checkpoint(folder) > trainer_.state.global_step) later.push_back(folder);
    }
    if (later.empty()) return;
    trainer_.logger.warning(str(
        args_.output_dir,
        " has checkpoints of later steps than the one that this run resumes "
        "from: ",
        names_of(later), ". The first save of this run renames them to abandoned-checkpoint-N"));
  }

  void report_nothing_left() const {
    trainer_.logger.warning(str("nothing is left to train: the run is at step ",
                                trainer_.state.global_step, " of ", plan_.max_steps));
  }

  const DataIdentity& data_identity() const {
    if (!data_identity_) data_identity_ = identity_of(trainer_.parts.train_dataset);
    return *data_identity_;
  }

  // Runs from the position of the loader to the end of its epoch.
  void epoch() {
    trainer_.control.should_epoch_stop = agreed_.stops_epoch = false;
    const std::int64_t number = loader_->epoch();
    trainer_.notify_callbacks(&TrainerCallback::on_epoch_begin);
    // The model is prepared when the weights are those that training begins with.
    if (!trainer_.prepared)
      trainer_.prepared.emplace(std::get<0>(trainer_.accelerator.prepare(trainer_.model)));
    for (const auto& [batch, info] : with_info(loader_)) {
      micro_batch(real_rows(batch, info));
      // A stop waits for the end of the step: a checkpoint inside its window would lose gradients.
      if (window_batches_ == 0 && (stops_training() || stops_epoch())) break;
    }
    check_parameters();
    if (stops_epoch()) loader_->set_epoch(number + 1);
    trainer_.notify_callbacks(&TrainerCallback::on_epoch_end);
    // Applies also if max_steps ended the epoch early, so that its last steps are logged,
    // evaluated and saved.
    if (args_.logging_strategy == IntervalStrategy::epoch) trainer_.control.should_log = true;
    if (args_.eval_strategy == IntervalStrategy::epoch && args_.eval_delay <= trainer_.state.epoch)
      trainer_.control.should_evaluate = true;
    if (args_.save_strategy == SaveStrategy::epoch) trainer_.control.should_save = true;
    agree_on_control();
    log_evaluate_save();
  }

  void micro_batch(RealRows real) {
    TrainerBatch batch = trainer_.to_device(real.batch, args_.per_device_train_batch_size);
    within_memory(str("training step ", trainer_.state.global_step + 1), [&] {
      const auto guard = trainer_.accelerator.accumulate(*trainer_.prepared);
      if (window_batches_++ == 0) trainer_.notify_callbacks(&TrainerCallback::on_step_begin);
      trainer_.use_trained_weights();
      const double items = real.count > 0 ? trainer_.count_items(real) : 0;
      const at::Tensor loss = trainer_.trainer.training_step(batch, items);
      trainer_.check_loss(loss);
      if (items > 0) losses_.add(loss, items);
      window_.items += items;
    });
    count(real);
    if (!trainer_.accelerator.sync_gradients())
      return trainer_.notify_callbacks(&TrainerCallback::on_substep_end);
    optimizer_step();
    request_due_actions();
    agree_on_control();
    log_evaluate_save();
  }

  // Counts FLOP and tokens of a module that knows them. What is unknown is not counted, which is
  // reported once.
  void count(const RealRows& real) {
    const TrainingTraits* const traits = trainer_.model_traits();
    const TensorDict* const columns = real.batch.get_if<TensorDict>();
    const bool asks = traits != nullptr && columns != nullptr;
    const std::optional<double> flos = asks ? traits->floating_point_ops(*columns) : std::nullopt;
    if (!flos && std::exchange(counts_flos_, false) && traits != nullptr) {
      trainer_.logger.warning(
          "total_flos is not counted: the model does not know the floating-point operations of its "
          "batches. Override TrainingTraits::floating_point_ops to count them");
    }
    if (real.count == 0) return;
    window_.flos += flos.value_or(0);
    if (args_.include_num_input_tokens_seen == CountTokens::no) return;
    std::optional<std::int64_t> tokens;
    if (asks) {
      tokens = args_.include_num_input_tokens_seen == CountTokens::non_padding
                   ? traits->real_token_count(*columns)
                   : traits->token_count(*columns);
    }
    if (!tokens) {
      trainer_.logger.warning_once(
          "num_input_tokens_seen is not counted: the model finds no tokens in its batches");
    }
    window_.tokens += static_cast<double>(tokens.value_or(0));
  }

  void optimizer_step() {
    const StepTotals totals = totals_of_window();
    if (args_.stop_on_nonfinite_loss) check_finite(totals);
    if (trainer_.traits().reads_scalars_late) {
      clip_on_device();
    } else {
      clip();
    }
    trainer_.notify_callbacks(&TrainerCallback::on_pre_optimizer_step);
    learning_rate_ = schedule_.learning_rate();
    trainer_.use_trained_weights();  // a callback may have evaluated the model
    within_memory(str("optimizer step ", trainer_.state.global_step + 1),
                  [&] { optimizer_.step(); });
    trainer_.notify_callbacks(&TrainerCallback::on_optimizer_step);
    if (schedule_.by_step) schedule_.by_step->step();
    optimizer_.zero_grad();
    ++trainer_.state.global_step;
    if (args_.torch_empty_cache_steps &&
        trainer_.state.global_step % *args_.torch_empty_cache_steps == 0)
      empty_device_cache();
    trainer_.state.epoch = epochs_seen();
    close_window(totals);
    if (trainer_.state.global_step == started_at_step_ + 1) check_parameters();
    trainer_.notify_callbacks(&TrainerCallback::on_step_end, losses_.latest());
    if (anatomy_ && anatomy_->finished()) report_anatomy();
  }

  // Returns the sums of the window over all processes.
  StepTotals totals_of_window() {
    window_.loss = losses_.of_step();
    return sum_over(trainer_.group(), std::exchange(window_, {}));
  }

  // Throws before the step, so that the weights are still those of the last finite loss.
  void check_finite(const StepTotals& all) const {
    const double loss = all.items > 0 ? all.loss / all.items : 0;
    if (std::isfinite(loss)) return;
    report_nonfinite_loss({.step = trainer_.state.global_step + 1, .count = 1, .loss = loss});
  }

  void close_window(const StepTotals& all) {
    window_batches_ = 0;
    trainer_.state.total_flos += all.flos;
    trainer_.state.num_input_tokens_seen += static_cast<std::int64_t>(all.tokens);
    losses_.close(all, trainer_.state.global_step);
  }

  void report_anatomy() {
    anatomy::Report report = anatomy_->report();
    anatomy_.reset();
    if (!trainer_.accelerator.is_main_process()) return;
    if (trainer_.parts.on_anatomy) return trainer_.parts.on_anatomy(report);
    add_roofs(report);
    if (args_.anatomy == "text") return std::cerr << '\n' << to_text(report), void();
    write_report(args_.anatomy, report);
    trainer_.logger.info("wrote the anatomy of the first steps to " + args_.anatomy);
  }

  // Runs the body and explains an error if memory runs out in it.
  template <class Body>
  void within_memory(const std::string& during, Body body) {
    try {
      body();
    } catch (const c10::Error& error) {
      ran_out_of_memory_ = is_out_of_memory(error);
      if (ran_out_of_memory_) explain_out_of_memory(error.what_without_backtrace(), args_, during);
      throw;
    } catch (const std::bad_alloc& error) {
      ran_out_of_memory_ = true;
      explain_out_of_memory(error.what(), args_, during);
    }
  }

  // If no callback reads the gradients, an optimizer that can does the scaling, which saves a
  // pass over memory.
  template <class Factor>
  void scale_gradients(const Factor& factor) {
    const bool are_read =
        std::any_of(trainer_.parts.callbacks.begin(), trainer_.parts.callbacks.end(),
                    [](const auto& callback) { return callback->reads_gradients(); });
    auto* folding = are_read ? nullptr : dynamic_cast<ScalesGradients*>(&optimizer_.unwrap());
    folding ? folding->scale_next_step(factor) : scale_gradients_(trained_, factor);
  }
  void clip() {
    grad_norm_ = gradient_norm(trained_);
    if (args_.max_grad_norm > 0) scale_gradients(clip_factor(grad_norm_, args_.max_grad_norm));
  }
  // The norm is read when it is logged.
  void clip_on_device() {
    const at::Tensor norm = gradient_norm_on_device(trained_);
    if (args_.max_grad_norm > 0) scale_gradients(clip_factor(norm, args_.max_grad_norm));
    grad_norm_ = DeferredScalar(norm);
  }

  double epochs_seen() const {
    const double batches = static_cast<double>(plan_.batches_per_epoch);
    return static_cast<double>(loader_->epoch()) +
           static_cast<double>(loader_->batch() + 1) / batches;
  }

  void report_nonfinite_loss(const LossRecord::Nonfinite& bad) const {
    trainer_.logger.warning(str(
        "the loss of step ", bad.step, " is ", std::isnan(bad.loss) ? "NaN" : "infinite",
        bad.count > 1
            ? str(", the first of ", bad.count, " losses since the last log that are not finite")
            : ""));
    if (!args_.stop_on_nonfinite_loss) return;
    throw DivergedError(
        "trainer.nonfinite-loss",
        {.what = str("step ", bad.step),
         .got = str("a loss of ", std::isnan(bad.loss) ? "NaN" : "infinity"),
         .expected = "a finite loss",
         .hint = "the weights are those before this step; a smaller learning_rate, warm-up, or "
                 "max_grad_norm usually helps"});
  }

  // Requests what is due at this step, like the Hugging Face Trainer's DefaultFlowCallback.
  void request_due_actions() {
    const std::int64_t step = trainer_.state.global_step;
    TrainerControl& control = trainer_.control;
    if (step == 1 && args_.logging_first_step) control.should_log = true;
    if (args_.logging_strategy == IntervalStrategy::steps && step % plan_.logging_steps == 0)
      control.should_log = true;
    if (args_.eval_strategy == IntervalStrategy::steps && step % plan_.eval_steps == 0 &&
        args_.eval_delay <= static_cast<double>(step)) {
      control.should_evaluate = true;
    }
    if (args_.save_strategy == SaveStrategy::steps && plan_.save_steps > 0 &&
        step % plan_.save_steps == 0)
      control.should_save = true;
    if (step >= plan_.max_steps) {
      control.should_training_stop = true;
      if (args_.save_strategy == SaveStrategy::steps) control.should_save = true;
      if (args_.eval_strategy == IntervalStrategy::steps &&
          args_.eval_delay <= static_cast<double>(step))
        control.should_evaluate = true;
    }
  }

  // Requests of callbacks take effect once all processes have agreed on them.
  void agree_on_control() {
    merge_control(trainer_.group(), trainer_.control);
    agreed_ = {.stops_training = trainer_.control.should_training_stop,
               .stops_epoch = trainer_.control.should_epoch_stop,
               .stop_signal = trainer_.control.stop_signal};
    if (args_.enable_jit_checkpoint && stops_on_signal() &&
        last_saved_ != trainer_.state.global_step)
      trainer_.control.should_save = true;
    if (stops_on_signal()) {
      trainer_.logger.warning_once(str(signal_text(agreed_.stop_signal),
                                       " was received: training stops at step ",
                                       trainer_.state.global_step, " of ", plan_.max_steps));
    }
  }

  // With several processes, a request between two agreements waits for the next one.
  bool stops_training() const {
    return trainer_.group().size() == 1 ? trainer_.control.should_training_stop
                                        : agreed_.stops_training;
  }
  bool stops_epoch() const {
    return trainer_.group().size() == 1 ? trainer_.control.should_epoch_stop : agreed_.stops_epoch;
  }

  bool stops_on_signal() const { return agreed_.stop_signal != 0; }

  // Returns nullopt if a signal stops it: metrics of only some rows would mislead.
  std::optional<Metrics> evaluate() {
    EvaluationStop stop(trainer_.group());
    return trainer_.evaluate(trainer_.parts.eval_dataset, "eval",
                             [&] { return stop.after_batch(trainer_.control.stop_signal); });
  }

  void log_evaluate_save() {
    TrainerControl& control = trainer_.control;
    const bool logs = control.should_log && trainer_.state.global_step > last_logged_;
    control.should_log = false;
    if (logs) {
      log_loss();
      agree_on_control();
    }
    if (control.should_evaluate && trainer_.parts.eval_dataset && !stops_on_signal()) {
      control.should_evaluate = false;
      const auto metrics = evaluate();
      if (metrics && schedule_.by_metric) schedule_.by_metric->step(metric_for_best(*metrics));
      const bool best = metrics && note_best(*metrics);
      if (args_.save_strategy == SaveStrategy::best) control.should_save = best;
      agree_on_control();
    }
    control.should_evaluate = false;
    if (control.should_save) {
      control.should_save = false;
      save_checkpoint();
      agree_on_control();
    }
  }

  void log_loss() {
    const LossRecord::Logged since =
        losses_.take_since_log(trainer_.state.global_step - last_logged_);
    Metrics logs = {
        {"loss", since.loss}, {"grad_norm", grad_norm_}, {"learning_rate", learning_rate_}};
    if (since.nonfinite > 0) logs["nonfinite_losses"] = static_cast<double>(since.nonfinite);
    last_logged_ = trainer_.state.global_step;
    trainer_.trainer.log(std::move(logs));
  }

  // Returns the value of metric_for_best_model.
  double metric_for_best(const Metrics& metrics) const {
    const std::string name = starts_with(args_.metric_for_best_model, "eval_")
                                 ? args_.metric_for_best_model
                                 : "eval_" + args_.metric_for_best_model;
    const auto found = metrics.find(name);
    if (found == metrics.end()) {
      std::vector<std::string> names;
      for (const auto& [key, value] : metrics) names.push_back(key);
      throw ConfigError("trainer.unknown-metric", {.what = "metric_for_best_model",
                                                   .got = name,
                                                   .expected = "one of " + join(names, ", ")});
    }
    return found->second;
  }

  bool note_best(const Metrics& metrics) {
    if (args_.metric_for_best_model.empty()) return false;
    const double metric = metric_for_best(metrics);
    if (!std::isfinite(metric)) return false;
    TrainerState& state = trainer_.state;
    const bool greater = args_.greater_is_better.value_or(false);
    if (state.best_metric && !(greater ? metric > *state.best_metric : metric < *state.best_metric))
      return false;
    state.best_metric = metric;
    state.best_global_step = state.global_step;
    return true;
  }

  fs::path checkpoint_folder() const {
    return fs::path(args_.output_dir) / str("checkpoint-", trainer_.state.global_step);
  }

  void save_checkpoint() {
    check_parameters();
    const fs::path target = checkpoint_folder();
    for (const auto& callback : trainer_.parts.callbacks) {
      if (!callback->name().empty())
        trainer_.state.callbacks[callback->name()] = callback->attributes();
    }
    // The best model's folder is set once that step has been saved, which may never happen.
    const auto best = trainer_.state.best_global_step;
    // A run resumed from another folder may have its best checkpoint there.
    if (best) {
      const fs::path folder = fs::path(args_.output_dir) / str("checkpoint-", *best);
      if (*best == trainer_.state.global_step || (*best == last_saved_ && fs::is_directory(folder)))
        trainer_.state.best_model_checkpoint = folder.string();
    }
    const TrainingPosition position = position_now();
    trainer_.use_evaluated_weights();
    const std::vector<TensorDict> random =
        args_.save_only_model ? std::vector<TensorDict>{} : random_states(trainer_.group());
    once(trainer_.group(), trainer_.writes(), [&] { write_checkpoint(target, position, random); });
    last_saved_ = trainer_.state.global_step;
    trainer_.notify_callbacks(&TrainerCallback::on_save);
  }

  // Returns what a checkpoint keeps of the position. A collective.
  TrainingPosition position_now() {
    const LossRecord::Sums losses = losses_.sums();
    return {.scheduler_step =
                schedule_.by_step ? schedule_.by_step->last_step() : trainer_.state.global_step,
            .num_processes = trainer_.group().size(),
            .loader = loader_->state(),
            .losses = LossPosition{.of_run = losses.of_run,
                                   .since_log = losses.since_log,
                                   .last_logged_step = last_logged_},
            .metric_schedule = metric_schedule_now()};
  }

  std::optional<MetricSchedule> metric_schedule_now() const {
    if (!schedule_.by_metric) return std::nullopt;
    return MetricSchedule{.type = std::string(name_of(args_.lr_scheduler_type)),
                          .state = schedule_.by_metric->state()};
  }

  void write_checkpoint(const fs::path& target, TrainingPosition position,
                        const std::vector<TensorDict>& random) const {
    CheckpointSave save(target);
    trainer_.write_model(save.path());
    if (!args_.save_only_model) {
      position.data = data_identity();
      save_training_state(save.path(), optimizer_.unwrap(), parameters_, position, random);
    }
    write_file_atomically(save.path() / "trainer_state.json", trainer_.state.to_json());
    save.commit({.limit = args_.save_total_limit,
                 .keep = trainer_.state.best_model_checkpoint,
                 .abandon_after = last_saved_});
  }

  TrainOutput finish() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    TrainerState& state = trainer_.state;
    const auto steps =
        static_cast<double>(state.global_step - started_at_step_);  // of this run only
    Metrics metrics = speed_metrics(
        "train", seconds, plan_.samples * steps / static_cast<double>(plan_.max_steps), steps);
    const double loss = losses_.mean();
    if (counts_flos_) metrics["total_flos"] = state.total_flos;
    metrics["train_loss"] = loss;
    if (!args_.skip_memory_metrics)
      metrics["train_mem_cpu_peak"] = static_cast<double>(host_memory().peak_resident);
    if (losses_.nonfinite() > 0)
      metrics["nonfinite_losses"] = static_cast<double>(losses_.nonfinite());
    broadcast_metrics(trainer_.group(), metrics);
    trainer_.trainer.log(metrics);
    metrics["epoch"] = state.epoch;
    trainer_.use_evaluated_weights();
    if (args_.load_best_model_at_end && !state.best_model_checkpoint.empty()) {
      once(trainer_.group(), trainer_.accelerator.is_main_process(),
           [&] { verify_checkpoint(state.best_model_checkpoint); });
      load_model_files(*trainer_.model, state.best_model_checkpoint);
      trainer_.logger.info(str("loaded the best model: ", state.best_model_checkpoint, " (",
                               args_.metric_for_best_model, " ", *state.best_metric, ")"));
    }
    trainer_.notify_callbacks(&TrainerCallback::on_train_end);
    return {.global_step = state.global_step,
            .steps = state.global_step - started_at_step_,
            .stop_signal = agreed_.stop_signal,
            .training_loss = loss,
            .metrics = metrics};
  }

  Impl& trainer_;
  const TrainingArguments& args_;
  ParameterNames parameters_;
  PreparedLoader<Loader<TrainerBatch>> loader_;
  LossRecord losses_;
  Plan plan_;
  std::vector<at::Tensor> trained_;
  PreparedOptimizer optimizer_;
  Schedule schedule_;
  std::optional<Anatomy> anatomy_;  // of the first steps

  struct Agreed {
    bool stops_training = false, stops_epoch = false;
    int stop_signal = 0;
  } agreed_;  // by all processes

  Clock::time_point start_;
  std::int64_t started_at_step_ = 0, last_logged_ = 0;
  std::int64_t last_saved_ = 0;      // or the step that was resumed from
  std::int64_t window_batches_ = 0;  // of the open accumulation window
  StepTotals window_;                // what this process contributes to it
  DeferredScalar grad_norm_;         // of the last step
  double learning_rate_ = 0;
  bool counts_flos_ = true, ran_out_of_memory_ = false;
  mutable std::optional<DataIdentity> data_identity_;  // computed when first needed
};

TrainOutput Trainer::train() {
  if (!impl_->args.auto_find_batch_size) return Run(*impl_).train();
  BatchSizeSearch search(*impl_);
  while (true) {
    fs::path checkpoint;
    {
      Run run(*impl_);
      try {
        return run.train();
      } catch (const MemoryError&) {
        if (!run.ran_out_of_memory() || !search.halve()) throw;
        checkpoint = run.saved_checkpoint();
      }
    }
    search.restart(checkpoint);
  }
}

}  // namespace hasten
