// File: hasten/checkpoint/merge_weights.h
// Merges weights that are stored in several files, as `hasten merge-weights` does.
//
//   merge_weights("out/checkpoint-500", "merged");        // merged/model.safetensors
//   merge_weights("big", "net.safetensors");              // a file of this name
//   merge_weights("big", "small", {.max_shard_size = 5'000'000'000});
//
// The source is a folder with model.safetensors.index.json, one with model.safetensors, or a
// checkpoint whose manifest says that its files `model*.safetensors` hold slices of tensors
// (docs/formats.md). A checkpoint is verified first. Tensors are read from the mapped files and
// written one at a time; a tensor that is split over several files is merged in memory.
//
// Throws DataError "weights.*", "checkpoint.*" and "safetensors.*"; UsageError
// "weights.merge-target" if the target is a checkpoint, because its manifest would no longer be
// true, and "weights.shard-size" for max_shard_size with one file; IoError "io.*". Thread rule: any
// thread, on different targets. Source: merge_fsdp_weights of Accelerate 1.15.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct MergeOptions {
  // The maximum bytes of tensors per file, if the target is a folder. If unset, there is one file.
  std::optional<std::int64_t> max_shard_size = std::nullopt;
};

// Writes the weights of `folder` to a file that ends in ".safetensors", or to a folder. Returns the
// weights, which are views of the files in `folder`.
HASTEN_API TensorDict merge_weights(const std::filesystem::path& folder,
                                    const std::filesystem::path& target,
                                    const MergeOptions& options = {});

}  // namespace hasten
