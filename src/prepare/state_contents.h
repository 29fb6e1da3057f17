// File: prepare/state_contents.h (internal)
// The contents that save_state() writes for an Accelerator: accelerator_state.json, and the tensors
// of each file.
//
//   const StateContents contents = state_contents(state, random, std::move(windows), {});
//   check_free_space(folder, bytes_of_state(state, contents), "a checkpoint");
//   write_state(state, contents, folder);
//
// Throws IoError "io.*" and UsageError "checkpoint.unknown-optimizer". Thread rule: that of the
// Accelerator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "prepare/accelerator_state.h"

namespace hasten {

// The files that the main process writes, except for the weights.
struct StateContents {
  nlohmann::json json;
  std::map<std::string, TensorDict> files;
};

// `random` has the generators of the ranks, and `windows` the open windows of each rank.
StateContents state_contents(AcceleratorState& state, const std::vector<TensorDict>& random,
                             nlohmann::json windows, const std::optional<ElasticPosition>& elastic);

// Returns the bytes of the tensors of these files and of the models.
std::uintmax_t bytes_of_state(AcceleratorState& state, const StateContents& contents);

// Writes these files and the weights of the models.
void write_state(AcceleratorState& state, const StateContents& contents,
                 const std::filesystem::path& folder);

}  // namespace hasten
