// File: prepare/state_contents.h (internal)
// The contents that save_state() writes for an Accelerator: accelerator_state.json, and the tensors
// of each file.
//
//   write_state(state, state_contents(state, random, std::move(windows), {}), folder);
//
// Throws IoError "io.*" and UsageError "checkpoint.unknown-optimizer". Thread rule: that of the
// Accelerator.
#pragma once

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

// Writes these files and the weights of the models. If the disk has too little space, throws before
// it writes anything.
void write_state(AcceleratorState& state, const StateContents& contents,
                 const std::filesystem::path& folder);

}  // namespace hasten
