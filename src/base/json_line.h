// File: base/json_line.h (internal)
// Writes JSON as one line, for a message from one process to another. Bytes that are not valid
// UTF-8 are replaced, because texts in a message, such as error messages, may contain any bytes.
//
//   const std::string line = json_line({{"host", host}, {"pid", pid}});
//
// Thread rule: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten {

template <class Json = nlohmann::json>
std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hasten
