// File: data/json_object.h (internal)
// Reads a line of a JSON lines file as an object, with errors that name the file and the line.
//
//   const nlohmann::ordered_json object = parse_json_object(line, "train.jsonl", 3);
//
// Throws DataError "text.json" for invalid JSON, a value that is not an object, and a key that
// occurs twice in it. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace hasten::detail {

nlohmann::ordered_json parse_json_object(const std::string& text, const std::string& file,
                                         std::int64_t line);

}  // namespace hasten::detail
