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
// Behaviour, names and files are those of transformers' Trainer (5.23). docs/design/ lists the
// differences: gradients of an accumulation window are weighted by their labels; losses that are
// not finite are counted and reported; the memory of an evaluation is bounded; a checkpoint is
// either complete or absent.
//
// Several processes (hasten launch -n 4 ./train) train together, with the numbers of one process
// that takes as many rows per step: losses and scores are those of all rows, and a row that fills
// up a last step does not count. All processes then make every call except the accessors, and one
// of them writes files and log lines. See docs/distributed.md.
//
// Throws ConfigError for arguments, UsageError "trainer.*", DataError, IoError, MemoryError, and
// DivergedError with stop_on_nonfinite_loss; before the first step if possible. Thread rule: one
// thread at a time. Several Trainers in one process are independent except for what LibTorch has
// once per process: generators, the number of threads, deterministic algorithms.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "hasten/anatomy/report.h"
#include "hasten/base/log.h"
#include "hasten/metrics/classification.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/training_arguments.h"
#include "hasten/trainer/callback.h"
#include "hasten/trainer/trainer_dataset.h"
#include "hasten/trainer/trainer_state.h"

namespace hasten {

// The objects that a Trainer works with. Only train() needs train_dataset, and only evaluations
// without a dataset of their own need eval_dataset.
struct TrainerParts {
  TrainerDataset train_dataset = {};
  TrainerDataset eval_dataset = {};
  std::shared_ptr<EvalMetric> compute_metrics = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  // Files that are saved with each model, such as a tokenizer's. They are read when the Trainer is
  // constructed.
  std::vector<std::filesystem::path> extra_files = {};
  // Receives the Trainer's own lines, such as those about a resumed run or a loss that is not
  // finite. Empty: standard error.
  LogSink log_sink = {};
  // Receives the anatomy of the first steps (TrainingArguments::anatomy) in the main process.
  // Empty: the report goes where that argument says.
  std::function<void(const anatomy::Report&)> on_anatomy = {};
};

struct TrainOutput {
  // The optimizer steps of the run, including those before a resume.
  std::int64_t global_step = 0;
  // The steps that this call made; 0 if a resumed run had nothing left to do.
  std::int64_t steps = 0;
  // The signal that stopped the run, the same in all processes; 0: none.
  int stop_signal = 0;
  // The mean over all steps of the run with a finite loss, including those before a resume.
  double training_loss = 0;
  // train_runtime (s), train_samples_per_second, train_steps_per_second, total_flos (if known),
  // train_loss, epoch; train_mem_cpu_peak (bytes) without skip_memory_metrics; nonfinite_losses if
  // there were any.
  Metrics metrics;
};

struct PredictionOutput {
  at::Tensor predictions;  // logits of all rows, on the CPU; undefined with prediction_loss_only
  at::Tensor label_ids;    // undefined if the data has no labels, or with prediction_loss_only
  Metrics metrics;         // named test_*, or with another prefix
};

class Trainer {
 public:
  Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments, TrainerParts parts);
  ~Trainer();

  // Trains, or continues the run that resume_from_checkpoint names.
  TrainOutput train();
  // Scores eval_dataset.
  Metrics evaluate(const std::string& metric_key_prefix = "eval");
  // Scores another dataset.
  Metrics evaluate(const TrainerDataset& dataset, const std::string& metric_key_prefix = "eval");
  // Predicts every row of a dataset, and scores it if it has labels.
  PredictionOutput predict(const TrainerDataset& dataset,
                           const std::string& metric_key_prefix = "test");

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
  // True in the job's main process.
  bool is_world_process_zero() const;
  // True in the main process of each machine.
  bool is_local_process_zero() const;
  const TrainerState& state() const;
  const TrainingArguments& args() const;

 private:
  class Run;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Prints the summary of the Transformers documentation: Time, Samples/second and memory
// (print_gpu_utilization), and the peak of the host's memory.
void print_summary(const TrainOutput& result, std::ostream& out);
// Prints it on standard output.
void print_summary(const TrainOutput& result);

}  // namespace hasten
