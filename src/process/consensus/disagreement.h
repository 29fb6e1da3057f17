// File: process/consensus/disagreement.h (internal)
// Finds the ranks whose text differs from that of most ranks. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

using Ranks = std::vector<std::int64_t>;

struct Disagreement {
  // The ranks whose text differs; empty if all texts are equal.
  Ranks different_ranks;
  // The text of the first of them.
  std::string first_different_text;
  // The ranks with the most frequent text; at a tie, those among which is the lowest rank.
  Ranks majority_ranks;
  // The most frequent text.
  std::string majority_text;
};

// `texts` holds the text of each rank; a rank without a text is left out.
Disagreement find_disagreement(const std::vector<std::optional<std::string>>& texts);

// Returns "rank 1" or "ranks 0, 2, 3". Names the first 16 ranks and the number of the others.
std::string ranks_text(const Ranks& ranks);

}  // namespace hasten
