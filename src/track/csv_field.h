// File: track/csv_field.h (internal)
// Writes a field of a CSV file, and reads the records of one (RFC 4180).
//
//   csv_field("a,b");                 // "\"a,b\""
//   while (!rest.empty()) use(next_csv_record(rest));   // {"1", "a,b"}
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hasten {

inline std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char character : text) quoted.append(character == '"' ? 2 : 1, character);
  return quoted + "\"";
}

// Removes the first record and its line end from `rest`, and returns the fields of the record.
// Returns an empty vector if `rest` is empty.
inline std::vector<std::string> next_csv_record(std::string_view& rest) {
  std::vector<std::string> fields;
  if (rest.empty()) return fields;
  fields.emplace_back();
  bool quoted = false;
  std::size_t at = 0;
  for (; at < rest.size(); ++at) {
    const char character = rest[at];
    if (character == '"') {
      const bool doubled = quoted && at + 1 < rest.size() && rest[at + 1] == '"';
      if (doubled) fields.back() += rest[at++];
      quoted = doubled || !quoted;
    } else if (!quoted && character == ',') {
      fields.emplace_back();
    } else if (!quoted && character == '\n') {
      break;
    } else if (quoted || character != '\r') {
      fields.back() += character;
    }
  }
  rest.remove_prefix(at < rest.size() ? at + 1 : rest.size());
  return fields;
}

}  // namespace hasten
