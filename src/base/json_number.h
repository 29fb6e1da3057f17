// File: base/json_number.h (internal)
// Reads whole numbers of JSON. nlohmann's get<std::int64_t>() converts a float beyond 64 bits, which
// is undefined, and an unsigned number beyond 63 bits to a negative one.
//
//   const auto step = whole_number_in(object["step"]);   // nothing for 1e300, 1.5 and "1"
//
// Thread rule: a pure function.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace hasten {

// Returns the number if it is a whole one of 64 bits with a sign, also if it is written as a float.
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

}  // namespace hasten
