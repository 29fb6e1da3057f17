// File: trainer/resume_checks.h (internal)
// Whether a run can go on from a checkpoint: a step has to mean the same rows as before. What else
// has changed is allowed, and is reported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hasten/checkpoint/training_state.h"
#include "hasten/config/training_arguments.h"
#include "hasten/trainer/trainer_dataset.h"
#include "hasten/trainer/trainer_state.h"

namespace hasten {

// A checkpoint as its files describe it.
struct CheckpointToResume {
  explicit CheckpointToResume(const std::filesystem::path& folder);

  std::filesystem::path folder;
  TrainerState state;
  TrainingPosition position;
  std::optional<std::string> arguments;  // training_args.json; nothing: there is none
};

// Throws ConfigError "trainer.batch-size-changed", "trainer.accumulation-changed" and
// "trainer.data-changed", unless ignore_data_skip begins an epoch anew.
void check_steps_mean_the_same(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                               std::int64_t processes, std::int64_t rows);

// A sentence for each argument that has another value than in the checkpoint and has a part in the
// numbers.
std::vector<std::string> changed_arguments(const CheckpointToResume& checkpoint,
                                           const TrainingArguments& args);

// Reads some rows, twice; the generators are left as they were.
DataIdentity identity_of(const TrainerDataset& data);

}  // namespace hasten
