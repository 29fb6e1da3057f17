// File: process/consensus/json_text.h (internal)
// Returns a message from one process to another as one line of JSON. Bytes that are not valid UTF-8
// are replaced, because texts in a message, such as that of an error, may contain any bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten {

inline std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hasten
