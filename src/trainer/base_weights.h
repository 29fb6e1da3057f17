// File: trainer/base_weights.h (internal)
// The weights that the adapters of a module leave as they are. A checkpoint of a run with adapters
// does not have them, but a digest of them (base_weights.json), because the values of adapters have
// a meaning only with the weights with which they were trained.
//
//   save_base_digest(staged, *digest_of_base(*model));
//   const bool is_other_base = saved_base_digest(folder).value_or(own) != own;
//
// Thread rule: that of the module. Throws IoError "io.*".
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <optional>
#include <string>

namespace hasten {

// Reads all of these weights once. Returns nothing if the module has no adapters.
std::optional<std::string> digest_of_base(const torch::nn::Module& module);

void save_base_digest(const std::filesystem::path& checkpoint, const std::string& digest);
// Returns the digest in the checkpoint. Returns nothing if it has none, as those of earlier
// versions.
std::optional<std::string> saved_base_digest(const std::filesystem::path& checkpoint);

}  // namespace hasten
