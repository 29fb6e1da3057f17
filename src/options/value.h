// File: options/value.h (internal)
// Parses texts into values, in the same way for flags, files and the environment, in any locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hasten::config {

// Accepts y, yes, t, true, on, 1 and n, no, f, false, off, 0, as Accelerate does, in any letter
// case.
std::optional<bool> parse_bool(std::string_view text);
// Accepts decimal digits with an optional sign.
std::optional<std::int64_t> parse_integer(std::string_view text);
// Accepts finite decimal numbers; returns nothing for inf, nan and numbers that overflow.
std::optional<double> parse_finite(std::string_view text);

}  // namespace hasten::config
