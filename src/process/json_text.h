// File: process/json_text.h (internal)
// A message of one process to another, on one line. Bytes that are no UTF-8 are replaced: they may
// come from anywhere, as the text of an error does.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten {

inline std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hasten
