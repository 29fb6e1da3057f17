// File: base/json_number.h (internal)
// Reads whole numbers of JSON. nlohmann's get<std::int64_t>() converts a float beyond 64 bits,
// which is undefined, and an unsigned number beyond 63 bits to a negative one. Also writes and
// reads numbers that are not finite: JSON has no infinity and no NaN, so they are texts.
//
//   const auto step = whole_number_in(object["step"]);   // nothing for 1e300, 1.5 and "1"
//   const std::int64_t rows = whole_number_at(object, "rows");   // throws for them
//   object["loss"] = json_of_number<Json>(std::nan(""));         // "nan"
//   const auto loss = real_number_in(object["loss"]);            // NaN; nothing for null and "x"
//
// Thread rule: a pure function.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "base/parse_number.h"
#include "base/strict_json.h"

namespace hasten {

// Returns the number if it is whole and fits into 64 signed bits, even if it is written as a float.
template <class Json>
std::optional<std::int64_t> whole_number_in(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.template get<std::uint64_t>();
    if (number >> 63 != 0) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.template get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.template get<double>();
  const bool fits = number >= -0x1p63 && number < 0x1p63 && number == std::trunc(number);
  return fits ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
}

// Returns the number under a key. Throws JsonError unless it is whole and fits into 64 signed bits,
// and nlohmann's exception if the key is missing.
template <class Json>
std::int64_t whole_number_at(const Json& object, const char* key) {
  const std::optional<std::int64_t> number = whole_number_in(object.at(key));
  if (!number) throw JsonError(str("a value of ", key, " that is not a whole number of 64 bits"));
  return *number;
}

// Returns an unsigned number of 64 bits. Throws what whole_number_at() throws.
template <class Json>
std::uint64_t unsigned_number_at(const Json& object, const char* key) {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned())
    throw JsonError(str("a value of ", key, " that is not a whole number from 0 to 2^64 - 1"));
  return value.template get<std::uint64_t>();
}

// Returns the number, or its text if it is not finite.
template <class Json>
Json json_of_number(double value) {
  return std::isfinite(value) ? Json(value) : Json(str(value));
}

// Returns the number, which may be written as a text.
template <class Json>
std::optional<double> real_number_in(const Json& value) {
  if (value.is_number()) return value.template get<double>();
  if (!value.is_string()) return std::nullopt;
  return parse_number<double>(value.template get<std::string>());
}

// Does what whole_number_at() does, for a key that may be missing.
template <class Json>
std::int64_t whole_number_at(const Json& object, const char* key, std::int64_t otherwise) {
  return object.contains(key) ? whole_number_at(object, key) : otherwise;
}

}  // namespace hasten
