// File: base/parse_number.h (internal)
// Parses a number that must be the whole text. It accepts neither a "+" sign nor spaces, and
// ignores the locale.
//
//   const auto port = parse_number<std::uint16_t>(word);
//   if (!port) fail(word);
//
// Returns nothing for an empty text, for other characters, and for a number that the type cannot
// hold. Throws nothing. Thread rule: a pure function.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace hasten {

template <class Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace hasten
