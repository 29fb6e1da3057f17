// Parses a flag's value as a whole number of at least 1, for commands that read their few flags
// themselves. Throws ConfigError "config.out-of-range".
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

#include "hasten/base/error.h"

namespace hasten::config {

inline std::int64_t parse_count(const std::string& flag, const std::string& word) {
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  if (error == std::errc() && end == word.data() + word.size() && out >= 1) return out;
  throw ConfigError(
      "config.out-of-range",
      {.what = flag, .got = "'" + word + "'", .expected = "a whole number of at least 1"});
}

}  // namespace hasten::config
