// File: process/unlike.h (internal)
// Which ranks say something else than most. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

using Ranks = std::vector<std::int64_t>;

struct Unlike {
  Ranks others;  // empty: all say the same
  std::string first_other;
  Ranks most;  // at a tie those with the lowest rank
  std::string right;
};

// `said` by rank 0, 1, ...; nothing: the rank is left out.
Unlike unlike_most(const std::vector<std::optional<std::string>>& said);

// "rank 1", "ranks 0, 2, 3"; of many the first 16.
std::string ranks_text(const Ranks& ranks);

}  // namespace hasten
