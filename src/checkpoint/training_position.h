// File: checkpoint/training_position.h (internal)
// Writes training_position.json of a checkpoint. load_training_position() in
// hasten/checkpoint/detail/training_state.h and load_run_record() in checkpoint/run_record.h read
// it.
//
//   save_training_position(folder, position, "AdamW", {});
//
// Throws IoError "io.*". Thread rule: the thread that trains.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/run_record.h"
#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

inline constexpr const char* kTrainingPositionFile = "training_position.json";

// Also writes the number of threads. `optimizer` is the name of the optimizer, which `position`
// lacks.
void save_training_position(const std::filesystem::path& folder, const TrainingPosition& position,
                            const std::string& optimizer,
                            const std::optional<OptionsOfRun>& options);

}  // namespace hasten
