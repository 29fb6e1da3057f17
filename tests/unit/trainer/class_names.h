// The names of a model's classes, in the order of their ids.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/models/pretrained_model.h"

namespace hasten {

inline std::vector<std::string> class_names_of(const PreTrainedModel& model) {
  std::vector<std::string> out;
  const auto all = nlohmann::json::parse(model.config_json()).at("id2label");
  for (std::size_t id = 0; id < all.size(); ++id)
    out.push_back(all.at(std::to_string(id)).get<std::string>());
  return out;
}

}  // namespace hasten
