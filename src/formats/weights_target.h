// File: formats/weights_target.h (internal)
// Writes weights to the target of a command: a file that ends in ".safetensors", or a folder.
//
//   check_weights_target("merged", max_shard_size);     // before anything is read
//   write_weights("merged", weights, max_shard_size, {{"format", "pt"}});
//
// Throws UsageError "weights.merge-target" if the target is a checkpoint or lies in one, because
// the manifest would become wrong, and "weights.shard-size" if max_shard_size is set for a target
// that is one file. Thread rule: any thread, on different targets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/formats/safetensors.h"

namespace hasten {

// `max_shard_size` limits the bytes of tensors in each file of a folder. If it is unset, there is
// one file.
void check_weights_target(const std::filesystem::path& target,
                          std::optional<std::int64_t> max_shard_size);
void write_weights(const std::filesystem::path& target, const TensorDict& weights,
                   std::optional<std::int64_t> max_shard_size, const SafetensorsMetadata& metadata);

}  // namespace hasten
