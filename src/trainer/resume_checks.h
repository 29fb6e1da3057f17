// File: trainer/resume_checks.h (internal)
// Checks whether a run can continue from a checkpoint: a step has to use the same rows as before.
// Other changes are allowed and reported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_record.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/options/detail/lora_options.h"
#include "hasten/options/training_arguments.h"
#include "hasten/trainer/detail/trainer_dataset.h"
#include "hasten/trainer/detail/trainer_state.h"

namespace hasten {

// A checkpoint, as its files describe it.
struct CheckpointToResume {
  explicit CheckpointToResume(const std::filesystem::path& folder);

  std::filesystem::path folder;
  TrainerState state;
  TrainingPosition position;
  RunRecord record;
  // The texts of training_args.json, config.json and adapter_config.json, if the folder has these
  // files.
  std::optional<std::string> arguments, configuration, adapter;
  std::optional<std::string> base_digest;  // of trainer/base_weights.h
};

// Throws ConfigError "trainer.batch-size-changed", "trainer.accumulation-changed" or
// "trainer.data-changed", unless ignore_data_skip starts an epoch again.
void check_resumable(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                     std::int64_t processes, std::int64_t rows);

// True if check_resumable() accepts the folder of a checkpoint for smaller batches, of which each
// step accumulates more. False if the folder has only weights.
bool allows_smaller_batches(const std::filesystem::path& folder, const TrainingArguments& args);

// True if the run cannot continue the open accumulation window of the checkpoint, whose gradients
// belong to micro-batches of another size or to another number of processes. The run then begins
// the window again.
bool restarts_window(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                     std::int64_t processes);
// Moves the position of the checkpoint to the first row of its open window, without the window.
// The weights and the optimizer's state have not changed since then.
void go_to_start_of_window(CheckpointToResume& checkpoint);

// Returns a sentence for each changed argument that affects the numbers.
std::vector<std::string> changed_arguments(const CheckpointToResume& checkpoint,
                                           const TrainingArguments& args);

// Returns a sentence for each changed key of the model's config.json that affects the numbers.
// `configuration` is the text of the model's own one.
std::vector<std::string> changed_configuration(const CheckpointToResume& checkpoint,
                                               const std::string& configuration);

// Returns a sentence for each changed option of the adapters that affects the numbers and that
// load_lora() does not refuse.
std::vector<std::string> changed_adapter(const CheckpointToResume& checkpoint,
                                         const LoraOptions& options);

// Throws ConfigError "trainer.data-changed" unless a stream is read in the same number of shards as
// before the checkpoint. Each process reads one shard; `shards` is 0 if no process reads a shard.
void check_same_shards(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                       std::int64_t shards);

// The number of rows of a stream that does not know its size.
inline constexpr std::int64_t kUnknownRows = -1;

// Identifies the data by reading some rows, twice. Leaves the generators as they were.
DataFingerprint identity_of(const TrainerDataset& data, std::int64_t rows);

}  // namespace hasten
