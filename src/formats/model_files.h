// File: formats/model_files.h (internal)
// Replaces a model's files in a folder that contains other files too.
//
//   const StagedDirectory staged(folder / kStagedModel);
//   // write config.json, the weights and the tokenizer into staged.path()
//   move_model_files(staged.path(), folder);
//
// The folder may contain checkpoints, so it cannot be swapped as a whole. A reader, meanwhile or
// after a crash, finds the old model, no weights, or the new model, but never files of both. If
// only the weights change and no shard has the name of another, there is always a model. Thread
// rule: one process writes a folder at a time. Throws IoError "io.*".
#pragma once

#include <filesystem>

namespace hasten {

// Models are staged as `.model.partial-<writer>`.
inline constexpr const char* kStagedModel = "model";

// The weights of an adapter, which stand for a model (hasten/models/lora.h).
inline constexpr const char* kAdapterFileName = "adapter_model.safetensors";

// Returns whether the folder has weights that load_weights finds, or those of an adapter.
bool has_weights(const std::filesystem::path& folder);

// Moves all files of `staged`, and deletes weights of an earlier save that are not among them.
void move_model_files(const std::filesystem::path& staged, const std::filesystem::path& folder);

}  // namespace hasten
