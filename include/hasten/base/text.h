// File: hasten/base/text.h
// Small text helpers: joining values into a string, readable sizes and durations, tables, and the
// nearest name for a misspelt one.
//
//   str("got ", 3, " rows");             // "got 3 rows"
//   human_bytes(14949000000);            // "14.9 GB": powers of 1000
//   nearest("lerning_rate", names);      // "learning_rate"
//
// Thread rule: pure functions. Only lack of memory makes them throw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

namespace detail {
inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, const char* text) { out += text; }
inline void append(std::string& out, char c) { out += c; }
// A template, so that no other type converts to bool.
template <class Bool>
requires std::is_same_v<Bool, bool>
void append(std::string& out, Bool value) { out += value ? "true" : "false"; }
HASTEN_API void append(std::string& out, double value);
template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool> &&
         !std::is_same_v<Integer, char>) void append(std::string& out, Integer value) {
  out += std::to_string(value);
}
}  // namespace detail

// Concatenates the arguments: strings, characters, integers, booleans ("true") and doubles (the
// shortest text that reads back to the same value).
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

// Formats a double with a fixed number of decimals.
HASTEN_API std::string fixed(double value, int decimals);
// Formats a double with `digits` significant digits, like printf's %g.
HASTEN_API std::string significant(double value, int digits);
// Formats bytes in powers of 1000 with three digits: "512 B", "1.34 GB".
HASTEN_API std::string human_bytes(std::int64_t bytes);
// Formats seconds as m:ss, or h:mm:ss from an hour on: "0:57", "1:02:03". `hundredths` adds two
// decimals: "0:57.82".
HASTEN_API std::string human_duration(double seconds, bool hundredths = false);
// Separates thousands by commas: "14,949".
HASTEN_API std::string group_thousands(std::int64_t value);

HASTEN_API std::string join(const std::vector<std::string>& parts, std::string_view separator);
HASTEN_API std::vector<std::string> split(std::string_view text, char separator);
HASTEN_API std::string_view trim(std::string_view text);
// Converts ASCII letters to lower case, in the C locale.
HASTEN_API std::string lower(std::string_view text);
HASTEN_API bool starts_with(std::string_view text, std::string_view prefix);
HASTEN_API bool ends_with(std::string_view text, std::string_view suffix);

// A digest of 16 hexadecimal digits, the same on every machine (FNV-1a, 64 bits). Not secure
// against an attacker.
HASTEN_API std::string short_digest(std::string_view bytes);

// Returns the candidate with the fewest edits from `word` (Damerau-Levenshtein: insert, delete,
// replace, swap neighbours). Returns nothing if that takes more edits than a third of the length of
// `word`; one edit is always allowed.
HASTEN_API std::optional<std::string> nearest(std::string_view word,
                                              const std::vector<std::string>& candidates);

// Formats a text table with a header line. Columns are padded to their widest cell; cells that
// start with a digit, a sign or a dot are right-aligned. Cells beyond the header's columns are
// dropped.
HASTEN_API std::string table(const std::vector<std::string>& header,
                             const std::vector<std::vector<std::string>>& rows);

}  // namespace hasten
