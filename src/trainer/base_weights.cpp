#include "trainer/base_weights.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/file_calls.h"
#include "base/sha256.h"
#include "base/strict_json.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/models/lora.h"
#include "models/lora_layers.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBaseWeightsFile = "base_weights.json";
constexpr const char* kDigestKey = "sha256";

}  // namespace

std::optional<std::string> digest_of_base(const torch::nn::Module& module) {
  if (!has_lora(module)) return std::nullopt;
  std::set<const void*> left_out = adapter_parameters(module, lora_options(module));
  TensorDict base;
  for (const auto& item : module.named_parameters()) {
    // A parameter with several names counts once.
    if (left_out.insert(item.value().unsafeGetTensorImpl()).second) base[item.key()] = item.value();
  }
  std::string text;
  for (const auto& [name, hash] : tensor_hashes(base)) text += str(name, ' ', hash, '\n');
  return sha256_of_text(text);
}

void save_base_digest(const fs::path& checkpoint, const std::string& digest) {
  write_file_atomically(checkpoint / kBaseWeightsFile,
                        nlohmann::json{{kDigestKey, digest}}.dump(2) + "\n");
}

std::optional<std::string> saved_base_digest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kBaseWeightsFile;
  if (!path_exists(file)) return std::nullopt;
  const auto json = parse_json_or_discard<nlohmann::json>(read_file(file));
  if (!json.is_object() || !json.contains(kDigestKey) || !json.at(kDigestKey).is_string())
    return std::nullopt;
  return json.at(kDigestKey).get<std::string>();
}

}  // namespace hasten
