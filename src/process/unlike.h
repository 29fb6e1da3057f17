// File: process/unlike.h (internal)
// Finds the ranks whose text differs from that of most ranks. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

using Ranks = std::vector<std::int64_t>;

struct Unlike {
  // The ranks whose text differs; empty if all texts are equal.
  Ranks others;
  // The text of the first of them.
  std::string first_other;
  // The ranks with the most frequent text; at a tie, those among which is the lowest rank.
  Ranks most;
  // The most frequent text.
  std::string right;
};

// `said` holds the text of each rank; a rank without a text is left out.
Unlike unlike_most(const std::vector<std::optional<std::string>>& said);

// Returns "rank 1" or "ranks 0, 2, 3". Names the first 16 ranks and the number of the others.
std::string ranks_text(const Ranks& ranks);

}  // namespace hasten
