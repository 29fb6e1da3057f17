// File: hasten/trainer/estimate.h
// Predicts what a training run will take before it runs, by making the Trainer's own steps on
// placeholder rows in a dry run. A generation is predicted in the same way, with its caches and
// beams.
//
//   anatomy::Report report = estimate({.model = "bert-large",
//                                      .length = 512,
//                                      .arguments = {.per_device_train_batch_size = 4}});
//   const std::int64_t bytes = report.memory.peak;
//
// Rows are random ids of the given length. For an exported model (a .pt2 file) they are random
// values for its inputs; the length replaces every dynamic size except the number of rows. Only
// arguments that change a step matter: batch size, accumulation, optimizer, precision, clipping.
// With dry = false the same steps are run and measured; the tests compare the prediction with the
// measurement. Throws what load_model, Trainer and DryRun throw, and UsageError
// "models.sequence-too-long". Thread rule: one call at a time in a process.
#pragma once

#include <optional>
#include <string>

#include "hasten/anatomy/report.h"
#include "hasten/base/detail/export.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/detail/lora_options.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/training_arguments.h"
#include "hasten/tpu/anatomy/detail/tpu_estimate.h"

namespace hasten {

struct EstimateOptions {
  std::string model = {};         // as load_model takes it, or a .pt2 file
  std::optional<Task> task = {};  // default_task_of(model) if unset
  std::int64_t num_labels = 0;    // 0 means as in config.json
  // Dropout rates as in ModelOptions; as in config.json if unset.
  std::optional<double> hidden_dropout = {}, attention_dropout = {}, classifier_dropout = {};
  // Initializes weights that have a different shape in the file, as in ModelOptions.
  bool ignore_mismatched_sizes = false;
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::int64_t length = 512;  // tokens per row, or of each prompt
  EstimateMode mode = EstimateMode::training;
  std::int64_t steps = 2;  // the first allocates the optimizer's states, the second has them
  // The new tokens of each row of a generation, and the beams of its search.
  std::int64_t new_tokens = 200, beams = 1;
  TrainingArguments arguments = {};
  std::vector<std::string> libraries = {};  // with custom operators of a .pt2 file
  LoraOptions lora = {.r = 0};              // an adapter that is trained instead, unless r is 0
  bool dry = true;                          // if false, measures the steps on the CPU or on "cuda"
  std::string device = "cpu";  // or "cuda:NAME" (hasten/machine/gpus.h), which is always dry
};

HASTEN_API anatomy::Report estimate(const EstimateOptions& options);

// Returns the paths of the layers that activation_checkpointing recomputes, in the order in which
// they run; empty if the model has no such layers.
HASTEN_API std::vector<std::string> recomputable_layers(const EstimateOptions& options);

struct FittingBatch {
  std::int64_t rows = 0;    // 0 if not even one row fits
  std::int64_t needed = 0;  // needed_bytes() of that batch, or of one row
};
// Returns the largest batch, up to the batch of the arguments, with which a step needs at most
// `limit` bytes. Makes a dry run for each batch that it tries; there are about log2(rows) of them.
HASTEN_API FittingBatch largest_fitting_batch(const EstimateOptions& options, std::int64_t limit);
// Makes the same steps for a TPU that need not be present, with a device such as "tpu:v5e:2x2" (a
// chip and the size of its network): the TPU's compiler compiles each program, and none is run.
// Call it once in a process, after the estimates for other devices. If a program does not compile,
// TpuEstimate::stopped says why. Also throws what DryTpu throws.
HASTEN_API anatomy::TpuEstimate estimate_for_tpu(const EstimateOptions& options);

}  // namespace hasten
