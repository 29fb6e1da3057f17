// File: hasten/formats/weights.h
// The weights of a model in a folder, in one safetensors file or in several with an index, as
// transformers keeps them.
//
//   TensorDict weights = load_weights("bert-base-uncased");   // a folder, a file or an index
//   save_weights("out", weights);                             // out/model.safetensors
//   save_weights("out", weights, {.max_shard_size = 5'000'000'000});
//       // out/model-00001-of-00003.safetensors ... and out/model.safetensors.index.json
//
// Sizes are bytes. Tensors come mapped from the files (hasten/formats/safetensors.h).
// Thread rule: functions; safe from any thread, on different folders.
// Throws DataError "weights.*" where index and shards do not agree, "safetensors.*" for a broken
// file, IoError "io.*".
// Source: transformers 5.23 save_pretrained and huggingface_hub's
// split_torch_state_dict_into_shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hasten/formats/safetensors.h"
#include "hasten/formats/tensor_dict.h"

namespace hasten {

struct WeightsOptions {
  // The most bytes of tensors a file holds; a larger tensor gets a file of its own.
  std::int64_t max_shard_size = 50'000'000'000;
  // The order in which the files are filled, a permutation of the names: the order of the model's
  // modules gives the files that transformers makes. Empty: sorted by name.
  std::vector<std::string> order = {};
  // What the index says as "total_parameters". Nothing: the elements of all tensors.
  std::optional<std::int64_t> total_parameters = std::nullopt;
  SafetensorsMetadata metadata = {{"format", "pt"}};
};

// The tensors of model.safetensors, or else of model.safetensors.index.json and the files it lists.
// Each listed file must be there and hold exactly the tensors the index says; a listed name with a
// folder in it is refused.
TensorDict load_weights(const std::filesystem::path& folder_or_file);

// Writes the folder's weights and removes what an earlier save left of another number of files.
// All shards are written aside first. Whoever reads the folder meanwhile, or after a crash, finds the
// old weights, none (only where shards take the names of old ones), or the new ones, never some of
// both. Shared memory is refused as in save_safetensors.
void save_weights(const std::filesystem::path& folder, const TensorDict& weights,
                  const WeightsOptions& options = {});

}  // namespace hasten
