// File: exported/json_cursor.h (internal)
// A value of a JSON text together with its place, so that every error names the place.
//
//   const auto document = JsonDocument::parse(text, "model.pt2: models/model.json");
//   const JsonCursor graph = document.root()["graph_module"]["graph"];
//   for (const JsonCursor& node : graph["nodes"].items()) compile(node["target"].text());
//
// The reader is strict: a missing field, a wrong type, a repeated key and nesting deeper than 256
// are errors. Throws DataError "exported.graph". A cursor refers to its document, which must
// outlive it. Thread rule: immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hasten::exported {

class JsonCursor {
 public:
  JsonCursor(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  // Returns the field of an object.
  JsonCursor operator[](const char* key) const;
  // Returns the field of an object, or nullopt if it is missing or null.
  std::optional<JsonCursor> find(const std::string& key) const;
  std::vector<JsonCursor> items() const;
  std::vector<std::pair<std::string, JsonCursor>> members() const;
  // Returns the tag and the value of a union: an object with one field.
  std::pair<std::string, JsonCursor> alternative() const;

  std::string text() const;
  std::int64_t integer() const;
  // Also reads the texts "Infinity", "-Infinity" and "NaN", because JSON has no such numbers.
  double number() const;
  bool boolean() const;

  // The file and the path of the value in it.
  const std::string& place() const { return place_; }
  [[noreturn]] void fail(const std::string& got, const std::string& expected) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

class JsonDocument {
 public:
  // `place` names the file and the record for messages.
  static JsonDocument parse(std::string_view text, const std::string& place);
  JsonCursor root() const { return {*value_, place_}; }

 private:
  std::shared_ptr<const nlohmann::json> value_;
  std::string place_;
};

}  // namespace hasten::exported
