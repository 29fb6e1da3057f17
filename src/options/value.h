// File: options/value.h (internal)
// Parses texts into values, in the same way for flags, files and the environment, in any locale,
// and writes texts as YAML scalars that YAML 1.1 (Python's) and YAML 1.2 both read as the same
// texts.
//
//   parse_bool("Yes");            // true
//   yaml_scalar("bert-base");     // bert-base
//   yaml_scalar("no");            // 'no', which YAML 1.1 would read as false
//   yaml_scalar("1e-3");          // '1e-3', which YAML 1.2 would read as a number
//   to_argument(Value{});         // none
//
// Throws only if memory runs out. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/internal_api.h"
#include "hasten/options/detail/resolved_value.h"

namespace hasten::config {

// Returns the boolean that a plain word is for readers of YAML 1.1: true, yes and on, and false, no
// and off, in any letter case. YAML 1.2 reads only true and false as booleans.
std::optional<bool> parse_yaml_bool(std::string_view word);
// Accepts y, yes, t, true, on, 1 and n, no, f, false, off, 0, as Accelerate does, in any letter
// case.
HASTEN_INTERNAL_API std::optional<bool> parse_bool(std::string_view text);
// Accepts decimal digits with an optional sign.
std::optional<std::int64_t> parse_integer(std::string_view text);
// Accepts finite decimal numbers. Returns nullopt for inf, nan and numbers that overflow.
std::optional<double> parse_finite(std::string_view text);

// Returns the argument after a flag that is read back as this value: "none" for an unset value, and
// an empty argument for an empty text, list or map.
std::string to_argument(const Value& value);

// Returns the text as a YAML scalar. It is in quotes if YAML could read it as something else: a
// word such as no or null, a number, a date, or a text with characters that have a meaning in YAML.
// Bytes that are not UTF-8 are replaced by U+FFFD, because no YAML file may contain them.
std::string yaml_scalar(const std::string& text);

}  // namespace hasten::config
