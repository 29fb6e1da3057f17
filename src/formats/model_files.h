// File: formats/model_files.h (internal)
// Replaces a model's files in a folder that contains other files too.
//
//   const StagedDirectory staged(folder / kStagedModel);
//   // write config.json, the weights and the tokenizer into staged.path()
//   move_model_files(staged.path(), folder);
//
// The folder may contain checkpoints, so it cannot be swapped as a whole. During the move or after
// a crash, a reader finds the old model, no weights, or the new model, but never a mixture. If only
// the weights change and no new shard has the name of an old one, the folder always has a model.
// Thread rule: one process writes a folder at a time. Throws IoError "io.*".
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace hasten {

// Models are staged as `.model.partial-<writer>`.
inline constexpr const char* kStagedModel = "model";

// The file of the weights, or the index if there are several files.
inline constexpr const char* kSingleFileName = "model.safetensors";
inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

// The file of an adapter's weights. A folder with it counts as a model (hasten/models/lora.h).
inline constexpr const char* kAdapterFileName = "adapter_model.safetensors";

// Returns whether the folder has weights that load_weights finds, or weights of an adapter.
bool has_weights(const std::filesystem::path& folder);

// Returns the names of the folder's files of weights and of their index.
std::set<std::string> names_of_weights(const std::filesystem::path& folder);

// Deletes the files of weights that an earlier save has left, except those that this one has
// written. A stale model.safetensors would take precedence over the index, and a stale index would
// list missing files.
void remove_stale_files(const std::filesystem::path& folder, const std::set<std::string>& written);

// Moves all files of `staged`, and deletes weights of an earlier save that are not among them. The
// folder gets a manifest of its weights (formats/model_manifest.h) unless it is itself unfinished.
void move_model_files(const std::filesystem::path& staged, const std::filesystem::path& folder);

}  // namespace hasten
