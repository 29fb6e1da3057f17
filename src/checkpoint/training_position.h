// File: checkpoint/training_position.h (internal)
// Writes training_position.json of a checkpoint. load_training_position() in
// hasten/checkpoint/detail/training_state.h reads it.
//
//   save_training_position(folder, position, "AdamW");
//
// Throws IoError "io.*". Thread rule: one thread at a time for a folder.
#pragma once

#include <filesystem>
#include <string>

#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// `optimizer` is the name of the optimizer, which `position` lacks.
void save_training_position(const std::filesystem::path& folder, const TrainingPosition& position,
                            const std::string& optimizer);

}  // namespace hasten
