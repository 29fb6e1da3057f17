// File: checkpoint/elastic_position.h (internal)
// Writes ElasticPosition (hasten/checkpoint/detail/training_state.h) to the JSON files of
// checkpoints, and reads it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_number.h"
#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// Sets the key `elastic` of the object, if there is a position.
inline void add_elastic(nlohmann::json& json, const std::optional<ElasticPosition>& position) {
  if (!position) return;
  json["elastic"] = {
      {"ranks", position->ranks}, {"threads", position->threads}, {"seed", position->seed}};
}

// Throws JsonError and nlohmann::json::exception.
inline std::optional<ElasticPosition> elastic_of(const nlohmann::json& json) {
  if (!json.contains("elastic")) return std::nullopt;
  const nlohmann::json& saved = json.at("elastic");
  return ElasticPosition{.ranks = whole_number_at(saved, "ranks"),
                         .threads = whole_number_at(saved, "threads"),
                         .seed = unsigned_number_at(saved, "seed")};
}

}  // namespace hasten
