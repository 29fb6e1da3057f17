// File: checkpoint/loss_scale_position.h (internal)
// Writes LossScalePosition (hasten/checkpoint/detail/training_state.h) to the JSON files of
// checkpoints, and reads it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_number.h"
#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// Sets the key `loss_scale` of the object, if there is a position.
inline void add_loss_scale(nlohmann::json& json, const std::optional<LossScalePosition>& position) {
  if (!position) return;
  json["loss_scale"] = {{"scale", position->scale},
                        {"growth_tracker", position->growth_tracker},
                        {"skipped_steps", position->skipped_steps},
                        {"skipped_since_log", position->skipped_since_log}};
}

// Throws JsonError and nlohmann::json::exception.
inline std::optional<LossScalePosition> loss_scale_of(const nlohmann::json& json) {
  if (!json.contains("loss_scale")) return std::nullopt;
  const nlohmann::json& saved = json.at("loss_scale");
  return LossScalePosition{.scale = saved.at("scale").get<double>(),
                           .growth_tracker = whole_number_at(saved, "growth_tracker"),
                           .skipped_steps = whole_number_at(saved, "skipped_steps"),
                           .skipped_since_log = whole_number_at(saved, "skipped_since_log")};
}

}  // namespace hasten
