// File: hasten/formats/weights.h
// Saves and loads the weights of a model in a folder, in one safetensors file or in several with an
// index, as in transformers.
//
//   TensorDict weights = load_weights("bert-base-uncased");   // a folder, a file or an index
//   save_weights("out", weights);                             // out/model.safetensors
//   save_weights("out", weights, {.max_shard_size = 5'000'000'000});
//   // out/model-00001-of-00003.safetensors ... and out/model.safetensors.index.json
//
// Sizes are bytes. Loaded tensors are views of the mapped files (hasten/formats/safetensors.h).
// save_weights writes a manifest with checksums, and load_weights verifies the files by the
// folder's manifest or by that of a checkpoint, if it has one (docs/formats.md). Throws DataError
// "weights.*" and "checkpoint.*" if files are damaged or the index and the shards disagree,
// DataError "safetensors.*" for a damaged file, UsageError "weights.*" and "safetensors.*" for
// invalid arguments, IoError "io.*".
// Thread rule: any thread, on different folders.
// Source: save_pretrained of transformers 5.23 and split_torch_state_dict_into_shards of
// huggingface_hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/formats/safetensors.h"

namespace hasten {

// The options of save_weights.
struct WeightsOptions {
  // The maximum bytes of tensors per file; a larger tensor gets its own file.
  std::int64_t max_shard_size = 50'000'000'000;
  // The order in which the files are filled, a permutation of the names. The order of the model's
  // modules gives the same files as transformers. If empty, names are sorted.
  std::vector<std::string> order = {};
  // "total_parameters" of the index. If unset, it is the number of elements of all tensors.
  std::optional<std::int64_t> total_parameters = std::nullopt;
  SafetensorsMetadata metadata = {{"format", "pt"}};
};

// Loads model.safetensors, or else the files that model.safetensors.index.json lists. Each listed
// file must exist and hold exactly the tensors that the index assigns to it. A file name that
// contains a folder is refused.
HASTEN_API TensorDict load_weights(const std::filesystem::path& folder_or_file);

// Writes the folder's weights, and removes files of an earlier save with a different number of
// files. All shards are first written to a temporary folder. A reader, at the same time or after a
// crash, finds the old weights, the new ones, or none (only if new shards have the names of old
// ones), but never a mixture. Refuses shared memory, as save_safetensors does.
HASTEN_API void save_weights(const std::filesystem::path& folder, const TensorDict& weights,
                             const WeightsOptions& options = {});

}  // namespace hasten
