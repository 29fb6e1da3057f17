// File: prepare/state_checkpoint.h (internal)
// Saves and loads everything that an Accelerator has prepared, as one checkpoint (docs/formats.md).
//
//   const std::filesystem::path folder = save_state_checkpoint(state, {.project = project});
//   load_state_checkpoint(state, {.project = project});
//
// Both are collectives: the main process writes, and every process reads. If one process fails, all
// of them throw. Throws UsageError "checkpoint.*", ConfigError "checkpoint.*", DataError
// "checkpoint.*", "weights.*" and "safetensors.*", IoError "io.*". Thread rule: that of the
// Accelerator.
#pragma once

#include <filesystem>

#include "hasten/prepare/detail/save_state.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// Saves to `folder` or, if it is empty, to the next folder of the project. Returns the folder.
std::filesystem::path save_state_checkpoint(AcceleratorState& state,
                                            const ProjectConfiguration& project,
                                            const std::filesystem::path& folder,
                                            const SaveStateOptions& options);

// Loads from `folder` or, if it is empty, from the newest verified checkpoint of the project.
// Returns false if the project has no checkpoint yet.
bool load_state_checkpoint(AcceleratorState& state, const ProjectConfiguration& project,
                           const std::filesystem::path& folder);

}  // namespace hasten
