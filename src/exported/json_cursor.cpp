#include "exported/json_cursor.h"

#include <limits>

#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

// Each nested graph adds seven levels.
constexpr std::size_t kMaxGraphDepth = 256;

[[noreturn]] void fail_at(const std::string& place, const std::string& got,
                          const std::string& expected) {
  throw DataError("exported.graph", {.what = place, .got = got, .expected = expected});
}

// Shortens a value, because a value of an untrusted file may be long.
std::string excerpt(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 80) + "...";
}

}  // namespace

JsonCursor JsonCursor::operator[](const char* key) const {
  if (!value_->is_object()) fail(excerpt(*value_), "an object");
  const auto found = value_->find(key);
  if (found == value_->end()) fail("no field \"" + std::string(key) + "\"", "this field");
  return {*found, place_ + "." + key};
}

std::optional<JsonCursor> JsonCursor::find(const std::string& key) const {
  if (!value_->is_object()) fail(excerpt(*value_), "an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonCursor(*found, place_ + "." + key);
}

std::vector<JsonCursor> JsonCursor::items() const {
  if (!value_->is_array()) fail(excerpt(*value_), "a list");
  std::vector<JsonCursor> all;
  for (std::size_t i = 0; i < value_->size(); ++i)
    all.emplace_back((*value_)[i], str(place_, '[', i, ']'));
  return all;
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::members() const {
  if (!value_->is_object()) fail(excerpt(*value_), "an object");
  std::vector<std::pair<std::string, JsonCursor>> all;
  for (const auto& [key, value] : value_->items())
    all.emplace_back(key, JsonCursor(value, place_ + "." + key));
  return all;
}

std::pair<std::string, JsonCursor> JsonCursor::alternative() const {
  if (!value_->is_object() || value_->size() != 1)
    fail(excerpt(*value_), "an object with one field");
  return members().front();
}

std::string JsonCursor::text() const {
  if (!value_->is_string()) fail(excerpt(*value_), "a text");
  return value_->get<std::string>();
}

std::int64_t JsonCursor::integer() const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() ||
                     value_->get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) fail(excerpt(*value_), "an integer of 64 bits");
  return value_->get<std::int64_t>();
}

double JsonCursor::number() const {
  if (value_->is_number()) return value_->get<double>();
  if (*value_ == "Infinity") return std::numeric_limits<double>::infinity();
  if (*value_ == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (*value_ == "NaN") return std::numeric_limits<double>::quiet_NaN();
  fail(excerpt(*value_), "a number");
}

bool JsonCursor::boolean() const {
  if (!value_->is_boolean()) fail(excerpt(*value_), "true or false");
  return value_->get<bool>();
}

void JsonCursor::fail(const std::string& got, const std::string& expected) const {
  fail_at(place_, got, expected);
}

JsonDocument JsonDocument::parse(std::string_view text, const std::string& place) {
  JsonDocument document;
  document.place_ = place;
  try {
    document.value_ = std::make_shared<const nlohmann::json>(
        parse_strict_json(text, {.max_depth = kMaxGraphDepth}));
  } catch (const JsonError& error) {
    fail_at(place, error.what(), "JSON");
  }
  return document;
}

}  // namespace hasten::exported
