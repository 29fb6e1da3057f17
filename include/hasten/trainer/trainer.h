// File: hasten/trainer/trainer.h
// A whole training run from its arguments: the loop, evaluation, logging, checkpoints, resuming.
//
//   TrainingArguments arguments{.output_dir = "out",
//                               .per_device_train_batch_size = 4,
//                               .num_train_epochs = 1,
//                               .eval_strategy = IntervalStrategy::epoch};
//   Trainer trainer(model, arguments, {.train_dataset = train_rows, .eval_dataset = eval_rows});
//   TrainOutput result = trainer.train();
//   print_summary(result);
//
// It trains any LibTorch module. A module whose forward() takes a batch and returns a ModelOutput,
// such as hasten's own models, needs nothing else; for any other module, compute_loss computes the
// loss of a batch (hasten/prepare/detail/compute_loss.h). Batches may have any type that a loader
// can return:
//
//   using Batch = std::pair<at::Tensor, at::Tensor>;
//   Trainer own(net, arguments,
//               {.train_dataset = train_rows, .compute_loss = [](Net& net, const Batch& batch) {
//                  return torch::nn::functional::cross_entropy(net.forward(batch.first),
//                                                              batch.second);
//                }});
//
// A class that derives from Trainer replaces steps of the run, as with the Hugging Face Trainer:
// see docs/trainer.md.
//
// Behaviour, names and files match transformers' Trainer (5.23). docs/design/ lists the
// differences: gradients of an accumulation window are weighted by their labels; losses that are
// not finite are counted and reported; the memory of an evaluation is bounded; a checkpoint is
// either complete or absent.
//
// Several processes (hasten launch -n 4 ./train) train together, and give the results of one
// process with the same number of rows per step. Losses and scores cover all rows, and a row that
// only fills up a last step does not count. All processes then make every call except the
// accessors, and one of them writes files and log lines. See docs/distributed.md.
//
// Throws ConfigError for arguments, UsageError "trainer.*", DataError, IoError, MemoryError, and
// DivergedError with stop_on_nonfinite_loss; before the first step if possible. Thread rule: one
// thread at a time. Several Trainers in one process are independent except for what LibTorch has
// once per process: generators, the number of threads, deterministic algorithms.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/anatomy/report.h"
#include "hasten/base/detail/export.h"
#include "hasten/base/log.h"
#include "hasten/data/detail/any_batch.h"
#include "hasten/metrics/classification.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"
#include "hasten/options/training_arguments.h"
#include "hasten/prepare/detail/compute_loss.h"
#include "hasten/prepare/detail/prepare.h"
#include "hasten/trainer/callback.h"
#include "hasten/trainer/detail/trainer_dataset.h"
#include "hasten/trainer/detail/trainer_state.h"

namespace hasten {

class Accelerator;

// The objects that a Trainer works with. Only train() needs train_dataset. Evaluations without a
// dataset of their own, save_strategy best and load_best_model_at_end need eval_dataset.
struct TrainerParts {
  TrainerDataset train_dataset = {};
  TrainerDataset eval_dataset = {};
  // Computes the loss of a batch, instead of the module's forward().
  LossFunction compute_loss = {};
  // Returns the labels of a batch, for metrics and predictions, and to weight a batch by its labels
  // that are not -100. Without this function, the labels are the column "labels" of a TensorDict
  // (or the columns that label_names names; the first of them determines the weight), the second
  // tensor of a pair, or the target of an example of torch::data. A batch without labels is
  // weighted by its rows.
  LabelFunction labels = {};
  std::shared_ptr<EvalMetric> compute_metrics = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  // Files that are saved with each model, such as a tokenizer's. They are read when the Trainer is
  // constructed.
  std::vector<std::filesystem::path> extra_files = {};
  // Receives the Trainer's own lines, such as lines about a resumed run or a loss that is not
  // finite. If empty, they go to standard error.
  LogSink log_sink = {};
  // Receives the anatomy of the first steps (TrainingArguments::anatomy) in the main process. If
  // empty, that argument decides where the report goes.
  std::function<void(const anatomy::Report&)> on_anatomy = {};
};

struct TrainOutput {
  // The optimizer steps of the run, including steps before a resume.
  std::int64_t global_step = 0;
  // The steps that this call made; 0 if a resumed run had nothing left to do.
  std::int64_t steps = 0;
  // The signal that stopped the run, the same in all processes, or 0.
  int stop_signal = 0;
  // The mean over the steps of the run, including steps before a resume. With
  // logging_nan_inf_filter (the default), steps whose loss is not finite do not count, and the mean
  // over no step is NaN. 0 for a run without steps.
  double training_loss = 0;
  // train_runtime (s), train_samples_per_second, train_steps_per_second, total_flos (if known),
  // train_loss, epoch; nonfinite_losses if there were any; with skip_memory_metrics false
  // train_mem_cpu_peak and the keys of the Hugging Face Trainer, in bytes (docs/trainer.md).
  Metrics metrics = {};
};

// The tensors have a row for each row of the data, and are on the CPU. With prediction_loss_only
// there are no tensors.
struct PredictionOutput {
  // The logits, or the only output of a model without logits.
  at::Tensor predictions = {};
  at::Tensor label_ids = {};  // undefined if the data has no labels
  Metrics metrics = {};       // named test_*, or with another prefix
  // The other outputs of the model by name: ModelOutput::others, and for a model without logits
  // also last_hidden_state and pooler_output.
  TensorDict other_predictions = {};
  // The columns that label_names names, if there are several. label_ids is the first one.
  TensorDict labels = {};
};

namespace detail {

template <class Object>
using ModuleOf =
    typename decltype(to_shared_ptr(std::declval<std::remove_cvref_t<Object>&>()))::element_type;

// A module, a pointer to one, or a TORCH_MODULE holder.
template <class Object>
concept ModuleObject = std::is_class_v<std::remove_cvref_t<Object>> &&
    std::is_base_of_v<torch::nn::Module, ModuleOf<Object>>;

}  // namespace detail

class HASTEN_API Trainer {
 public:
  // Takes what Accelerator::prepare takes as a module: a TORCH_MODULE holder, a std::shared_ptr, or
  // a module itself, which must outlive the Trainer.
  template <detail::ModuleObject Model>
  Trainer(Model&& model, TrainingArguments arguments, TrainerParts parts)
      : Trainer(detail::to_shared_ptr(std::forward<Model>(model)),
                detail::forward_of<detail::ModuleOf<Model>>(), std::move(arguments),
                std::move(parts)) {}
  Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments, TrainerParts parts);
  virtual ~Trainer();

  // Outputs of the model by name that evaluations and predictions leave out, such as hidden states
  // that would take much memory.
  using IgnoreKeys = std::vector<std::string>;

  // Trains, or continues the run that resume_from_checkpoint names.
  TrainOutput train(const IgnoreKeys& ignore_keys_for_eval = {});
  // Scores eval_dataset. Returns eval_loss, the results of compute_metrics as eval_NAME,
  // eval_runtime (s), eval_samples_per_second, eval_steps_per_second, and after training epoch.
  // Another metric_key_prefix replaces "eval".
  Metrics evaluate(const std::string& metric_key_prefix = "eval",
                   const IgnoreKeys& ignore_keys = {});
  // Scores another dataset.
  Metrics evaluate(const TrainerDataset& dataset, const std::string& metric_key_prefix = "eval",
                   const IgnoreKeys& ignore_keys = {});
  // Predicts every row of a dataset, and scores it if it has labels.
  PredictionOutput predict(const TrainerDataset& dataset,
                           const std::string& metric_key_prefix = "test",
                           const IgnoreKeys& ignore_keys = {});

  // Saves weights, configuration, training arguments and extra_files in output_dir, or in another
  // folder. A process that reads the folder meanwhile, or after a crash, finds the previous model,
  // no model, or this one, but never files of both.
  void save_model(const std::filesystem::path& folder = {});
  // True if output_dir, or another folder, holds the weights of a model.
  bool has_saved_model(const std::filesystem::path& folder = {}) const;
  // Writes trainer_state.json in output_dir.
  void save_state();
  // Writes SPLIT_results.json in output_dir, and merges the metrics into all_results.json there.
  void save_metrics(const std::string& split, const Metrics& metrics);
  // Prints "***** SPLIT metrics *****" and an aligned table in the main process.
  void log_metrics(const std::string& split, const Metrics& metrics, std::ostream& out) const;

  void add_callback(std::shared_ptr<TrainerCallback> callback);
  // Removes the callback, and returns false if the Trainer does not have it. A callback may add and
  // remove callbacks: that takes effect with the next call.
  bool remove_callback(const std::shared_ptr<TrainerCallback>& callback);
  // True in the job's main process.
  bool is_world_process_zero() const;
  // True in the main process of each machine.
  bool is_local_process_zero() const;
  // Returns the state of the latest or current run. Its log_history has every logged line.
  const TrainerState& state() const;
  // Returns the arguments after resolved() (hasten/options/training_arguments.h).
  const TrainingArguments& args() const;
  torch::nn::Module& model() const;
  // The Accelerator of the run (hasten/accelerator.h).
  Accelerator& accelerator() const;

  // The steps of a run. A class that derives from Trainer may override each of them, and may call
  // Trainer's version in it. Their names match the Hugging Face Trainer. docs/trainer.md has an
  // example of each.

  // Returns the loss of a batch on the device, and the logits if the module has them. Calls
  // TrainerParts::compute_loss or the module's forward(), and applies label_smoothing_factor.
  // Called in the precision of the run, in training and in evaluations.
  virtual ModelOutput compute_loss(AnyBatch& batch);
  // Computes the gradients of a micro-batch with compute_loss() and Accelerator::backward(), and
  // returns the loss, which is logged. `items` is the number of labels (or rows) that the loss is a
  // mean over. It is the weight of the loss in the step, and 0 in a process that has no rows that
  // count.
  virtual at::Tensor training_step(AnyBatch& batch, double items);
  // Returns the loss and the logits of a batch of an evaluation or a prediction; both may be
  // undefined. Called without gradients, with the module in evaluation mode.
  virtual ModelOutput prediction_step(AnyBatch& batch);
  // Makes the optimizer that the arguments name, with weight decay for the parameters that decay.
  virtual std::unique_ptr<torch::optim::Optimizer> create_optimizer();
  // Makes the schedule that the arguments name, for a run of that many optimizer steps.
  virtual std::unique_ptr<LambdaLR> create_scheduler(torch::optim::Optimizer& optimizer,
                                                     std::int64_t num_training_steps);
  // Makes the schedule that follows metric_for_best_model. Called instead of create_scheduler() if
  // lr_scheduler_type is reduce_lr_on_plateau or greedy.
  virtual std::unique_ptr<MetricScheduler> create_metric_scheduler(
      torch::optim::Optimizer& optimizer);
  // Adds the logs to the history with the epoch and the step, and calls on_log of the callbacks.
  virtual void log(Metrics logs);
  // Make the loaders of this process's batches; the Trainer prepares them. The Trainer sets the
  // position of the training loader when a run resumes.
  virtual Loader<AnyBatch> get_train_dataloader();
  virtual Loader<AnyBatch> get_eval_dataloader(const TrainerDataset& dataset);

 private:
  Trainer(std::shared_ptr<torch::nn::Module> model, LossFunction forward,
          TrainingArguments arguments, TrainerParts parts);

  class Run;
  class BatchSizeSearch;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Prints the summary of the Transformers documentation: Time, Samples/second and memory
// (print_gpu_utilization), and the peak of the host's memory.
HASTEN_API void print_summary(const TrainOutput& result, std::ostream& out);
// Prints the summary on standard output.
HASTEN_API void print_summary(const TrainOutput& result);

}  // namespace hasten
