#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/written_files.h"
#include "formats/deferred_writes.h"
#include "formats/memory_overlap.h"
#include "formats/model_files.h"
#include "formats/model_manifest.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> fill_order(const TensorDict& weights,
                                    const std::vector<std::string>& order) {
  if (!order.empty()) {
    const std::set<std::string> given(order.begin(), order.end());
    const bool same =
        given.size() == weights.size() && order.size() == weights.size() &&
        std::all_of(order.begin(), order.end(), [&](const auto& n) { return weights.contains(n); });
    if (same) return order;
    throw UsageError("weights.order",
                     {.what = "the order of the weights",
                      .got = std::to_string(order.size()) + " names",
                      .expected = "each of the " + std::to_string(weights.size()) + " names once"});
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights) names.push_back(name);
  return names;
}

// Fills shards in order. A tensor that does not fit begins the next shard. A tensor that is larger
// than a shard gets its own shard, which is numbered before the one being filled.
std::vector<TensorDict> split_into_shards(const TensorDict& weights,
                                          const std::vector<std::string>& order,
                                          std::int64_t max_bytes) {
  std::vector<TensorDict> shards;
  TensorDict filling;
  std::int64_t filled = 0;
  for (const std::string& name : order) {
    const at::Tensor& tensor = weights.at(name);
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (bytes > max_bytes) {
      shards.push_back({{name, tensor}});
      continue;
    }
    if (filled + bytes > max_bytes) {
      shards.push_back(std::exchange(filling, {}));
      filled = 0;
    }
    filling.emplace(name, tensor);
    filled += bytes;
  }
  if (!filling.empty() || shards.empty()) shards.push_back(std::move(filling));
  return shards;
}

std::string shard_name(std::size_t shard, std::size_t of) {
  auto five_digits = [](std::size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return "model-" + five_digits(shard + 1) + "-of-" + five_digits(of) + ".safetensors";
}

// Formats the index like Python's json.dumps(index, indent=2, sort_keys=True) + "\n".
std::string index_text(const std::map<std::string, std::string>& weight_map,
                       std::int64_t parameters, std::int64_t bytes) {
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
      {"weight_map", weight_map}};
  return index.dump(2, ' ', true) + "\n";
}

}  // namespace

void save_weights(const fs::path& folder, const TensorDict& weights,
                  const WeightsOptions& options) {
  if (options.max_shard_size <= 0) {
    throw UsageError("weights.shard-size", {.what = "max_shard_size",
                                            .got = std::to_string(options.max_shard_size),
                                            .expected = "a number of bytes above 0"});
  }
  for (const auto& [name, tensor] : weights) {
    if (!tensor.defined()) {
      throw UsageError("safetensors.unsupported", {.what = "tensor \"" + name + "\"",
                                                   .got = "an undefined tensor",
                                                   .expected = "a tensor with values"});
    }
  }
  detail::check_no_shared_memory(weights, folder.string());  // Also between shards.
  const auto shards =
      split_into_shards(weights, fill_order(weights, options.order), options.max_shard_size);
  check_writable_directory(folder);
  if (shards.size() == 1) {
    return with_model_manifest(folder, [&] {
      save_safetensors(folder / kSingleFileName, shards[0], options.metadata);
      remove_stale_files(folder, {kSingleFileName});
    });
  }
  // A folder that is already being staged needs no second stage, and its shards may be written
  // later.
  std::optional<StagedDirectory> staged;
  if (DeferredWrites::active() == nullptr) staged.emplace(folder / kStagedModel);
  if (staged && !is_partial(folder)) record_written_files(staged->path());
  const fs::path target = staged ? staged->path() : folder;
  std::map<std::string, std::string> weight_map;
  std::int64_t parameters = 0, bytes = 0;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name = shard_name(shard, shards.size());
    save_safetensors(target / name, shards[shard], options.metadata);
    for (const auto& [tensor_name, tensor] : shards[shard]) {
      weight_map[tensor_name] = name;
      parameters += tensor.numel();
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  write_file_atomically(
      target / kIndexFileName,
      index_text(weight_map, options.total_parameters.value_or(parameters), bytes));
  if (staged) move_model_files(target, folder);
}

}  // namespace hasten
