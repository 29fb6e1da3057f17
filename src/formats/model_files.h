// File: formats/model_files.h (internal)
// A model's files that take the place of another model's in a folder that holds more than them.
//
//   const StagedDirectory staged(folder / kStagedModel);
//   ... write config.json, the weights and the tokenizer into staged.path() ...
//   move_model_files(staged.path(), folder);
//
// A folder cannot be swapped as a whole where checkpoints lie in it. What holds instead: whoever
// reads the folder meanwhile, or after a crash, finds the old model, no weights at all, or the new
// model, and never files of both. Where the weights are all that changes, and no shard takes the
// name of another, there is no moment without a model. Thread rule: one process writes a folder at
// a time. Throws IoError "io.*".
#pragma once

#include <filesystem>

namespace hasten {

// What models are staged as: `.model.partial-<writer>`.
inline constexpr const char* kStagedModel = "model";

// Whether the folder has a model's weights, as load_weights looks for them.
bool has_weights(const std::filesystem::path& folder);

// Moves all files of `staged`; weights of an earlier save that are not among them are deleted.
void move_model_files(const std::filesystem::path& staged, const std::filesystem::path& folder);

}  // namespace hasten
