// File: hasten/base/text.h
// Small text helpers: joining values into a string, human-readable sizes and durations, tables,
// nearest names.
//
//   str("got ", 3, " rows")            // "got 3 rows"
//   human_bytes(14949000000)           // "14.9 GB"  (powers of 1000, as nvidia-smi's documentation
//   example) nearest("lerning_rate", names)     // "learning_rate"
//
// Thread rule: pure functions. None of them throws but for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hasten {

namespace detail {
inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, const char* text) { out += text; }
inline void append(std::string& out, char c) { out += c; }
// A template, so that nothing but a bool becomes one.
template <class Bool>
requires std::is_same_v<Bool, bool>
void append(std::string& out, Bool value) { out += value ? "true" : "false"; }
void append(std::string& out, double value);
template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool> &&
         !std::is_same_v<Integer, char>) void append(std::string& out, Integer value) {
  out += std::to_string(value);
}
}  // namespace detail

// The arguments one after the other: strings, characters, integers, booleans ("true") and doubles
// (shortest text that reads back to the same value).
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

// A double with a fixed number of decimals.
std::string fixed(double value, int decimals);
// A double with `digits` significant digits, as printf's %g.
std::string significant(double value, int digits);
// Bytes in powers of 1000 with three digits: "512 B", "1.34 GB".
std::string human_bytes(std::int64_t bytes);
// Seconds as h:mm:ss, with hundredths below an hour where `hundredths`: "0:57.82", "1:02:03".
std::string human_duration(double seconds, bool hundredths = false);
// Thousands separated: 14,949.
std::string grouped(std::int64_t value);

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);

// 16 hexadecimal digits that tell contents apart, the same on every machine (FNV-1a, 64 bits). Not
// for secrets.
std::string short_digest(std::string_view bytes);

// The candidate with the fewest edits from `word` (Damerau-Levenshtein: insert, delete, replace,
// swap neighbours), if that is close enough to be worth suggesting: at most a third of the word's
// length, and at least one edit allowed.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

// A text table with a header line: columns padded to their widest cell, numbers (cells that start
// with a digit, a sign or a dot) right-aligned.
std::string table(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows);

}  // namespace hasten
