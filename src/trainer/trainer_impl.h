// File: trainer/trainer_impl.h (internal)
// State and helpers that the files of the Trainer share. The loop itself is in training_run.cpp.
#pragma once

#include <torch/torch.h>

#include "anatomy/step_mark.h"
#include "base/folder_lock.h"
#include "device/device.h"
#include "hasten/accelerator.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/metrics/metric.h"
#include "hasten/optim/detail/schedule_free.h"
#include "hasten/trainer/trainer.h"
#include "trainer/agreement.h"
#include "trainer/memory_tracker.h"
#include "trainer/rows.h"
#include "trainer/run_plan.h"

namespace hasten {

class WorkCounter;

struct Trainer::Impl {
  // The parts of one call of train(), each in the header with its name.
  struct RunParts;
  class ModelSetup;
  class StepMemory;
  class RunControl;
  class RunCheckpoints;
  class StepGraphs;
  class Resume;
  // One pass of an evaluation or a prediction, also in the header with its name.
  class Evaluation;

  Impl(Trainer& trainer, std::shared_ptr<torch::nn::Module> model, LossFunction forward,
       TrainingArguments arguments, TrainerParts parts);

  // Returns the signal that is to end an evaluation, or 0. Each process calls it after each batch.
  using Signal = std::function<int()>;
  static int no_signal() { return 0; }

  // Returns nullopt if a signal has ended it.
  std::optional<Metrics> evaluate(const TrainerDataset& dataset, const std::string& prefix,
                                  const Trainer::IgnoreKeys& ignored, const Signal& signal);
  PredictionOutput predict(const TrainerDataset& dataset, const std::string& prefix,
                           const Trainer::IgnoreKeys& ignored);
  // Adds rows with the labels of the data to a metric, which gets the labels that it needs.
  void add_to_metric(EvalMetric& metric, const EvalPrediction& rows) const;
  // Returns the scores of compute_metrics over the batches of all processes. A collective.
  Metrics computed_metrics() const;
  // Returns the scores of compute_metrics for these rows. Empty without compute_metrics or labels.
  Metrics scores_of(const EvalPrediction& all) const;
  // Returns the labels that weight a batch: the first column if it has several. Undefined if the
  // batch has none.
  at::Tensor labels_of(AnyBatch& batch) const;
  // Sets the labels for metrics and predictions if the batch has all of label_names.
  void add_labels(AnyBatch& batch, EvalPrediction& to) const;
  // Returns an output of the batch without the padding for a device with static shapes. It is then
  // on the CPU, because each different number of rows would be another program on the device.
  at::Tensor output_of(const at::Tensor& output, const AnyBatch& given) const;
  // True if the model's loss compares these labels with the logits of the tokens before them.
  bool shifts_labels(const at::Tensor& labels) const;
  // Returns the number of items that a loss is a mean over: labels that are not -100, or rows.
  double count_items(RealRows& real) const;
  // Throws ConfigError "trainer.packed-batch" if the model cannot take the batch.
  void check_packed_batch(AnyBatch& batch) const;
  // Returns the outputs of compute_loss or of the module, with label smoothing if it is requested.
  ModelOutput compute_loss(AnyBatch& batch) const;
  // Returns the outputs for a batch in a training step. Their loss has a gradient. The model must
  // be prepared.
  ModelOutput training_output(AnyBatch& batch);
  // Returns the loss with label smoothing, or the loss of the module.
  at::Tensor smoothed_loss(const ModelOutput& out, AnyBatch& batch) const;
  // Throws UsageError "trainer.*" unless the loss is a number, and has gradients if it is trained.
  void check_loss(const at::Tensor& loss) const;
  void check_loss_shape(const at::Tensor& loss) const;
  // Logs the rows that a part of a run has failed on, because the errors of LibTorch and of a
  // module do not name them. Does nothing for an error of hasten, or of memory.
  void report_failed_rows(const std::string& part, const RealRows& rows,
                          const std::exception& error) const;
  // Throws ConfigError "trainer.padding-free" if padding_free is set and not possible.
  void check_padding_free() const;
  // Returns the batch for the model: without padding if padding_free is set.
  AnyBatch unpadded_batch(const AnyBatch& batch) const;
  // Copies the tensors to pinned memory. The bounds of packed rows also stay in ordinary memory.
  void pin(TensorDict& batch) const;
  // True if evaluations use unpadded_batch(). `reads_outputs` is false if they only use the loss.
  bool evaluates_unpadded_batches(bool reads_outputs) const;
  // Moves a batch to the device; `rows` is the size of a full batch.
  AnyBatch to_device(const AnyBatch& batch, std::int64_t rows) const;
  LoaderOptions loader_options(std::int64_t batch_size) const;
  // The module's own answers about its training, or null if it gives none.
  const TrainingTraits* model_traits() const { return traits_of(*model); }

  const Group& group() const { return accelerator.group(); }
  bool is_elastic() const { return args.elastic_ranks > 0; }
  std::int64_t data_ranks() const { return hasten::data_ranks(args, group().size()); }
  // The number of virtual ranks of this process; 1 without elastic ranks.
  std::int64_t local_virtual_ranks() const { return data_ranks() / group().size(); }
  const DeviceTraits& traits() const { return device_of(accelerator.device()).traits(); }
  // True if this process writes the files that all share.
  bool writes() const;
  // Returns the state of a run that begins.
  TrainerState new_state() const;
  // Sets the fields that say which process this is.
  void set_process_flags(TrainerState& state) const;

  void write_model(const std::filesystem::path& folder) const;

  // The open accumulation window (trainer/saved_window.cpp). Returns what each process has
  // contributed, in rank order. `loss` is this process's sum. A collective.
  std::vector<WindowPosition> gather_windows(const StepTotals& totals, double loss) const;
  // Saves the gradients of this process.
  void save_gradients(const std::filesystem::path& folder) const;
  // Continues the window of a checkpoint once the model is prepared. `scale` is the scale of its
  // losses.
  void restore_window(const std::vector<WindowPosition>& windows,
                      const std::optional<LossScalePosition>& scale,
                      const std::filesystem::path& folder);
  // Returns the scale of the losses for a checkpoint, or nullopt if they are not scaled.
  std::optional<LossScalePosition> loss_scale_position() const;
  // Continues with the scale of a checkpoint, or begins with the first one if there is none.
  void restore_loss_scale(const std::optional<LossScalePosition>& saved);
  // Returns the number of steps that were skipped since the last call.
  std::int64_t take_skipped_steps();

  // The end of a run (trainer/run_end.cpp).
  struct RunFigures {
    double seconds;
    std::int64_t steps;  // the steps of this run only, without those before it was resumed
    double loss;         // the mean loss
  };
  Metrics final_metrics(const RunFigures& figures, const RunParts& run,
                        const WorkCounter& work) const;
  // Gives the model the weights of the best checkpoint, or logs a warning if there is none. If it
  // is damaged, the model keeps its weights, and the state no longer names a best checkpoint.
  void load_best_model();

  TrainerEvent event() {
    return {.args = args, .state = state, .model = *model, .accelerator = &accelerator};
  }
  template <class... Parameters, class... Arguments>
  void notify_callbacks(void (TrainerCallback::*hook)(const TrainerEvent&, TrainerControl&,
                                                      Parameters...),
                        Arguments&&... arguments) {
    for_each_callback([&](TrainerCallback& each) { (each.*hook)(event(), control, arguments...); });
  }
  // Calls f with each callback. A callback that is added or removed meanwhile counts from the next
  // call on.
  template <class F>
  void for_each_callback(F&& f) const {
    const std::vector<std::shared_ptr<TrainerCallback>> all = parts.callbacks;
    for (const auto& callback : all) f(*callback);
  }

  // Adds the bars and lines that disable_tqdm asks for, unless a callback shows the run already.
  void add_own_progress();
  // Adds a callback. If it shows the run, it replaces the Trainer's own bars and lines.
  void add_callback(std::shared_ptr<TrainerCallback> callback);
  // Returns the callbacks with attributes that a checkpoint keeps, by the key in it. The key is the
  // callback's name. From the second callback of the same name on, a number follows.
  std::vector<std::pair<std::string, TrainerCallback*>> stateful_callbacks() const;

  Trainer& trainer;  // may be of a derived class with steps of its own
  std::shared_ptr<torch::nn::Module> model;
  LossFunction forward;  // the module's own function
  TrainingArguments args;
  TrainerParts parts;
  Accelerator accelerator;
  MemoryTracker memory;
  Logger logger;
  std::map<std::string, std::string> extra_files;  // bytes by name, in the process that writes
  std::shared_ptr<TrainerCallback> own_progress;   // among the callbacks, or null
  TrainerState state;
  TrainerControl control;
  // During train(), in the process that writes: the lock on output_dir, or null without one.
  std::shared_ptr<FolderLock> output_lock;
  // During train(): the module as the Accelerator has prepared it.
  std::optional<PreparedModel<torch::nn::Module>> prepared;
  // The optimizer, if it evaluates different weights than it trains.
  WeightAveragingOptimizer* averaging = nullptr;
  // Gives the model the weights to evaluate and to save, or the weights to train. Every process
  // calls them at the same places, because switching there and back rounds the weights.
  void use_evaluated_weights() const {
    if (averaging != nullptr) averaging->eval();
  }
  void use_trained_weights() const {
    if (averaging != nullptr) averaging->train();
  }
  Trainer::IgnoreKeys ignored_in_evaluations;  // the keys that train() has been given
  // The skipped steps that logs have reported.
  std::int64_t logged_skipped_steps = 0;
  // The number of steps of the run, from its plan.
  std::int64_t num_training_steps = 0;
};

// Returns the runtime and the rates, rounded to 4 and 3 decimals as in the Hugging Face Trainer.
Metrics speed_metrics(const std::string& prefix, double seconds, double samples, double steps);
// Returns the name of the first label column.
std::string first_label_column(const TrainingArguments& args);
// Throws UsageError "trainer.no-logits". `what` names the feature that needs logits.
[[noreturn]] void throw_no_logits(const std::string& what);
// Throws MemoryError "trainer.out-of-memory".
[[noreturn]] void throw_out_of_memory(const std::string& during, const std::string& got,
                                      const std::string& hint);
// Throws MemoryError "trainer.out-of-memory" with LibTorch's text, the explanation if there is one,
// and what to try.
[[noreturn]] void explain_out_of_memory(const std::string& text, const TrainingArguments& args,
                                        const std::string& during,
                                        const anatomy::FailureText& why = {});

}  // namespace hasten
