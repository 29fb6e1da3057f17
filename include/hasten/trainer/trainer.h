// File: hasten/trainer/trainer.h
// A whole training run from its arguments: the loop, evaluation, logging, checkpoints, resuming.
//
//   TrainingArguments arguments{.output_dir = "out", .per_device_train_batch_size = 4,
//   .num_train_epochs = 1,
//                               .eval_strategy = IntervalStrategy::steps};
//   Trainer trainer(model, arguments, {.train_dataset = TrainerDataset(rows)});
//   TrainOutput result = trainer.train();
//   print_summary(result);
//
// Behaviour, names and files are those of transformers' Trainer (5.23), but for what docs/design/
// lists: gradients of an accumulation window are weighed by their labels; losses that are not
// finite are counted and shown; evaluation memory is bounded; checkpoints appear whole or not at
// all.
//
// Started in several processes (hasten launch -n 4 ./train) they train together, with the numbers
// of one process that takes as many rows a step: losses and scores are those of all rows, and a row
// that fills up a last step counts nothing. Every call but the accessors is then made by all
// processes; one of them writes files and lines. docs/distributed.md.
//
// Throws ConfigError for arguments, UsageError "trainer.*", DataError, IoError, MemoryError;
// before the first step where that is possible. Thread rule: one thread at a time. Several Trainers
// in one process are independent but for what LibTorch has once a process: generators, the number
// of threads, determinism.
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
#include "hasten/config/training_arguments.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/trainer/callback.h"
#include "hasten/trainer/evaluation.h"
#include "hasten/trainer/trainer_dataset.h"
#include "hasten/trainer/trainer_state.h"

namespace hasten {

struct TrainerParts {
  TrainerDataset train_dataset = {};
  TrainerDataset eval_dataset = {};
  std::shared_ptr<EvalMetric> compute_metrics = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  // Copied beside each saved model: a tokenizer's files. They are read when the Trainer is made.
  std::vector<std::filesystem::path> extra_files = {};
  // Where the Trainer's own lines go (resumed from, a loss that is not finite); nothing: standard
  // error.
  LogSink log_sink = {};
  // What the anatomy of the first steps found (TrainingArguments::anatomy); nothing: as that says.
  std::function<void(const anatomy::Report&)> on_anatomy = {};
};

struct TrainOutput {
  std::int64_t global_step = 0;
  std::int64_t steps = 0;    // that this call made; 0 where a resumed run had nothing left to do
  int stop_signal = 0;       // for which the run stopped, the same in all processes; 0: none
  double training_loss = 0;  // mean over all steps of the run, also those before a resume
  Metrics metrics;           // train_runtime (s), train_samples_per_second, train_steps_per_second,
                             // total_flos (where known), train_loss, epoch
};

struct PredictionOutput {
  at::Tensor predictions;  // logits on the CPU
  at::Tensor label_ids;    // undefined where the data has no labels
  Metrics metrics;         // test_*
};

class Trainer {
 public:
  Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments, TrainerParts parts);
  ~Trainer();

  TrainOutput train();
  // On eval_dataset, or another one.
  Metrics evaluate(const std::string& metric_key_prefix = "eval");
  Metrics evaluate(const TrainerDataset& dataset, const std::string& metric_key_prefix = "eval");
  PredictionOutput predict(const TrainerDataset& dataset,
                           const std::string& metric_key_prefix = "test");

  // Weights, configuration and extra_files into output_dir, or another folder. Whoever reads the
  // folder meanwhile, or after a crash, finds the model that was there, none, or this one, but
  // never files of both.
  void save_model(const std::filesystem::path& folder = {});
  // Whether there are weights of a model.
  bool has_saved_model(const std::filesystem::path& folder = {}) const;
  // trainer_state.json into output_dir.
  void save_state();
  // SPLIT_results.json and all_results.json (merged) into output_dir.
  void save_metrics(const std::string& split, const Metrics& metrics);
  // "***** train metrics *****" and an aligned table.
  void log_metrics(const std::string& split, const Metrics& metrics, std::ostream& out) const;

  void add_callback(std::shared_ptr<TrainerCallback> callback);
  // Whether this is the job's main process, and its machine's.
  bool is_world_process_zero() const;
  bool is_local_process_zero() const;
  const TrainerState& state() const;
  const TrainingArguments& args() const;

 private:
  class Run;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The documentation's summary: Time, Samples/second, and memory (print_gpu_utilization's line).
void print_summary(const TrainOutput& result, std::ostream& out);
void print_summary(const TrainOutput& result);  // on standard output

}  // namespace hasten
