// File: trainer/training_run.h (internal)
// One run of Trainer::train: it makes the parts, resumes a run, makes the steps, and ends the run.
//
//   Run run(trainer);
//   const TrainOutput output = run.train();
//
// run_attempts.cpp makes one run, or several with auto_find_batch_size. Throws what the parts and
// the steps throw. Thread rule: that of the Trainer's collectives.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model_setup.h"
#include "trainer/resume.h"
#include "trainer/run_checkpoints.h"
#include "trainer/run_control.h"
#include "trainer/run_parts.h"
#include "trainer/step_graphs.h"
#include "trainer/step_memory.h"
#include "trainer/work_counter.h"

namespace hasten {

class Trainer::Run {
 public:
  explicit Run(Impl& trainer);

  // True if a training step, and not an evaluation, ran out of memory.
  bool ran_out_of_memory() const { return memory_.ran_out(); }
  // Returns the newest checkpoint that this run has saved, or an empty path if it has saved none. A
  // collective.
  std::filesystem::path newest_checkpoint();
  // The checkpoint that this run continues, or an empty path.
  const std::filesystem::path& resumed_checkpoint() const { return resumed_.folder; }

  TrainOutput train();

 private:
  using Clock = std::chrono::steady_clock;

  // training_run.cpp defines the loop over epochs, and what is due after a step.

  TrainOutput train_to_end();
  // Sets the state at the start of the run, or the state of the checkpoint that it continues.
  void begin();
  // Continues the sums of the window in which the checkpoint was saved.
  void restore_totals();
  void report_nothing_left() const;
  // Runs from the position of the loader to the end of its epoch.
  void run_epoch();
  // Does what is due at the end of an epoch.
  void end_epoch();
  // Trains on the rest of the pass. If a stream has no more rows after the first pass, the run
  // ends, as in the Hugging Face Trainer.
  void train_on_epoch();
  // Does what is due after an optimizer step.
  void after_step();
  // A callback may ask for a checkpoint inside the window. Logs and evaluations wait for the step.
  // With elastic ranks, checkpoints wait too.
  void end_substep();
  void agree();
  void log_evaluate_save();
  void log_loss();
  // Returns nullopt if a signal stops it: metrics of only some rows would mislead.
  std::optional<Metrics> evaluate();
  // Throws IoError "io.not-writable" or "io.not-a-directory" unless the report can be written.
  void check_anatomy_file() const;
  void report_anatomy();
  // An error does not end the run, as with a checkpoint: the next call writes these links as well.
  void write_hashes();
  // The optimizer would not train a parameter that has been added or replaced since the start.
  void check_parameters() const;
  // Reports a series of such losses once: if the weights are NaN, every later loss is NaN too.
  void report_nonfinite_loss(const LossRecord::NonfiniteLosses& bad);
  TrainOutput finish();

  // due_work.cpp defines what is left to a run that continues.

  // True if a step has ended the epoch, and the work at its end has not begun.
  bool is_epoch_end_due() const;
  // Returns the work that is due after the current step, for a checkpoint of it.
  std::optional<DueWork> due_work() const;
  // If a callback has stopped the epoch, moves the loader to the next one.
  void skip_rest_of_epoch();
  void save();
  // Saves if a checkpoint is requested. If a signal stops the run, or in a step that the run has
  // resumed from, an existing checkpoint of the step stays.
  void save_if_requested();
  // Ends an epoch in which a signal has stopped the run. The run that continues does what is due at
  // the end of the epoch.
  void leave_epoch();
  // Does what is due after the step of the checkpoint that the run continues. If a signal prevents
  // it, it remains due.
  void do_due_work();
  void make_up_evaluation();

  // run_steps.cpp defines the steps.

  // True if the next batch belongs to a step that a graph may repeat. This is false while an
  // anatomy records steps, and in the rest of a window that a checkpoint has begun.
  bool may_use_graph() const { return graphs_.is_on() && !anatomy_ && window_batches_ == 0; }
  // Waits for all batches of a step, because a graph runs them together. They are copied to the
  // device now, while it still computes the step before.
  void add_to_step(RealRows rows, bool is_last_of_data);
  void run_pending_step(const Impl::StepGraphs::Step& step);
  // `virtual_rank` is the batch's virtual rank, counted from 0 in this process. `ends_rank` says
  // whether this is its last batch of the step. Without elastic ranks they are 0 and false.
  void run_micro_batch(RealRows real, std::int64_t virtual_rank, bool ends_rank);
  // Makes a step of an optimizer that computes the loss of the batch several times. The loss of the
  // step is the first one. The norm is that of the last gradients.
  void run_closure_step(AnyBatch& batch, RealRows& real);
  void run_optimizer_step();
  // Computes the gradients of the current micro-batch, and returns its loss.
  at::Tensor training_step(AnyBatch& batch, double items);
  // Clips the gradients and returns their norm.
  DeferredScalar clip();
  // Checks the loss that training_step() returns, which a class may override. The loss is only
  // logged, so it may be detached: the gradients are computed already.
  void check_returned_loss(const at::Tensor& loss) const;
  void check_has_gradients() const;
  // Throws before the step, so that the weights are still those of the last finite loss.
  void check_finite(const StepTotals& all);
  // Keeps the sums of a virtual rank, which are added up along a tree.
  void end_virtual_rank();
  std::string name_of_step() const;
  // Returns the sums of the window over all processes.
  StepTotals totals_of_window();
  void end_step(const StepTotals& totals);
  void close_window(const StepTotals& all);
  bool callbacks_read_gradients() const;
  double epochs_seen() const;
  // Returns the number of rows of a full batch of this process.
  std::int64_t batch_rows() const;
  // Returns a step that explains why memory ran out. It is made in a fork of this process.
  ExplainableStep dry_retry();
  // Makes an optimizer step with the first rows of the batch. It uses a second micro-batch if there
  // is one: that batch finds gradients, so it needs the memory that all later ones need.
  void dry_step(std::int64_t rows);

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
  std::int64_t latest_nonfinite_step_ = -1;

  Clock::time_point start_;
  std::int64_t started_at_step_ = 0;
  // The number of the epoch whose end has not begun; unset between two epochs.
  std::optional<std::int64_t> open_epoch_;
  bool evaluation_due_ = false;            // a signal has skipped or stopped the last evaluation
  bool continues_own_checkpoint_ = false;  // the run has resumed from a folder in output_dir
  std::int64_t window_batches_ = 0;        // the batches of the open accumulation window
  StepTotals window_;                      // what this process contributes to it
  // With elastic ranks, what each virtual rank of this process contributes to it.
  std::vector<StepTotals> virtual_rank_totals_;
  Impl::Resume::PendingState resumed_;  // is restored once the model is prepared
  DeferredScalar grad_norm_;            // the norm of the last step
  double learning_rate_ = 0;
  const bool evaluates_closure_ =
      dynamic_cast<torch::optim::LBFGS*>(&run_.optimizer.unwrap()) != nullptr;
  Impl::ModelSetup setup_;  // reset first when the run ends
};

}  // namespace hasten
