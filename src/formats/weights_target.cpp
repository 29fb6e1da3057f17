#include "formats/weights_target.h"

#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/detail/tensor_slice.h"
#include "hasten/formats/weights.h"

namespace hasten {
namespace {

bool is_one_file(const std::filesystem::path& target) {
  return target.extension() == ".safetensors";
}

// Returns the checkpoint that the path is or lies in; empty if there is none. A manifest lists the
// files of all subfolders.
std::filesystem::path checkpoint_around(const std::filesystem::path& target) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(target, ignored).lexically_normal();
  while (!std::filesystem::exists(folder / kManifestFile, ignored)) {
    const std::filesystem::path parent = folder.parent_path();
    if (parent == folder) return {};
    folder = parent;
  }
  return folder;
}

}  // namespace

void check_weights_target(const std::filesystem::path& target,
                          std::optional<std::int64_t> max_shard_size) {
  const std::filesystem::path checkpoint = checkpoint_around(target);
  if (!checkpoint.empty()) {
    throw UsageError("weights.merge-target",
                     {.what = target.string(),
                      .got = "a path in the checkpoint " + checkpoint.string(),
                      .expected = "a path outside of checkpoints",
                      .hint = "a checkpoint keeps the files that its manifest lists"});
  }
  if (!max_shard_size || !is_one_file(target)) return;
  throw UsageError("weights.shard-size", {.what = "max_shard_size, writing to " + target.string(),
                                          .got = str(*max_shard_size, " bytes"),
                                          .expected = "a folder, which can have several files",
                                          .hint = "name a folder, or leave out max_shard_size"});
}

void write_weights(const std::filesystem::path& target, const TensorDict& weights,
                   std::optional<std::int64_t> max_shard_size,
                   const SafetensorsMetadata& metadata) {
  if (is_one_file(target)) return save_safetensors(target, weights, metadata);
  make_directories(target);
  save_weights(target, weights,
               {.max_shard_size = max_shard_size.value_or(std::numeric_limits<std::int64_t>::max()),
                .metadata = metadata});
}

}  // namespace hasten
