// File: prepare/state_files.h (internal)
// The names of the files in the folder of save_state(), and the positions of loaders and trackers
// and the open windows in accelerator_state.json (docs/formats.md).
//
//   numbered_file("model", 0);       // "model.safetensors"
//   numbered_file("optimizer", 2);   // "optimizer_2.safetensors"
//
// The functions that read JSON throw nlohmann::json::exception and JsonError for other JSON. Thread
// rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/prepare/detail/loader_position.h"
#include "hasten/prepare/detail/open_window.h"
#include "track/tracker_set.h"

namespace hasten {

inline constexpr const char* kStateFile = "accelerator_state.json";
inline constexpr const char* kRandomFile = "random_state.safetensors";

// Returns "model.safetensors", "model_1.safetensors" and so on, as Accelerate names its files.
std::string numbered_file(const char* what, std::size_t number);
// Returns the name of the file of a registered object.
std::string object_file(std::size_t number);

// Returns the position of the loader with this number as JSON. If it has a generator, adds the
// generator's state to `generators`.
nlohmann::json position_to_json(const detail::SavedPosition& position, std::size_t number,
                                TensorDict& generators);
// Returns the position from such JSON.
detail::SavedPosition position_from_json(const nlohmann::json& json, std::size_t number,
                                         const TensorDict& generators);

// Returns the numbers of the window's models and its counts as JSON.
nlohmann::json window_to_json(const OpenWindow& window);
// Returns the window from such JSON.
OpenWindow window_from_json(const nlohmann::json& json);

// Returns the positions of trackers as JSON.
nlohmann::json trackers_to_json(const TrackerSet::Positions& positions);
// Returns the positions from such JSON.
TrackerSet::Positions trackers_from_json(const nlohmann::json& json);

}  // namespace hasten
