// File: config/value.h (internal)
// Texts to values, the same way for flags, files and the environment, in any locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hasten::config {

// true false yes no on off 1 0, in any case of letters.
std::optional<bool> parse_bool(std::string_view text);
// Decimal digits with an optional sign.
std::optional<std::int64_t> parse_integer(std::string_view text);
// A finite decimal number; inf, nan and what overflows are none.
std::optional<double> parse_number(std::string_view text);

}  // namespace hasten::config
