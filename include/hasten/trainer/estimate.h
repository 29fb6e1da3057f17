// File: hasten/trainer/estimate.h
// What a training run will take, before it runs: the Trainer's own steps on stand-in rows, dry.
//
//   anatomy::Report report = estimate({.model = "bert-large", .length = 512,
//                                      .arguments = {.per_device_train_batch_size = 4}});
//   report.memory.peak;                                 // bytes
//
// Rows are random ids of the given length. Of the arguments those count that change a step: batch
// size, accumulation, optimizer, precision, clipping. With dry = false the same steps are made for
// real and measured: what the prediction is tested against. Throws as load_model, Trainer and
// DryRun do. Thread rule: one at a time in a process.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hasten/anatomy/report.h"
#include "hasten/anatomy/tpu_account.h"
#include "hasten/config/attention.h"
#include "hasten/config/estimate_mode.h"
#include "hasten/config/training_arguments.h"

namespace hasten {

struct EstimateOptions {
  std::string model;            // a folder with config.json, a config.json, or a built-in name
  std::int64_t num_labels = 0;  // 0: as config.json says
  // Dropout rates and new weights in place of those of another shape: as of ModelOptions.
  std::optional<double> hidden_dropout, attention_dropout, classifier_dropout;
  bool ignore_mismatched_sizes = false;
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::int64_t length = 512;  // tokens of a row
  EstimateMode mode = EstimateMode::training;
  std::int64_t steps = 2;  // the first makes the optimizer's states, the second has them
  TrainingArguments arguments;
  bool dry = true;
  std::string device = "cpu";  // or "cuda:NAME" (hasten/config/gpus.h), dry alone
};

anatomy::Report estimate(const EstimateOptions& options);
// The same steps on a TPU that need not be here, each program compiled by its compiler (device
// "tpu:TOPOLOGY", hasten/config/tpus.h): once in a process, after the estimates for other devices.
// Where a program does not compile, TpuAccount::stopped says so. Throws as DryTpu does, too.
anatomy::TpuAccount estimate_for_tpu(const EstimateOptions& options);
// The peaks of the same step with one thing changed each: precision, batch, length, optimizer.
// `began` hears the name of each. For a TPU each has a process of its own, a fork of this one, so
// it comes before estimate_for_tpu: UsageError "process.fork-after-tpu", RankError.
std::vector<anatomy::Alternative> what_if(
    const EstimateOptions& options, const std::function<void(const std::string&)>& began = {});

}  // namespace hasten
