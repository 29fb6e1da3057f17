// File: process/consensus/comparison.h (internal)
// Answers whether all ranks are about to do the same thing, and which ranks differ. A rank
// describes what it is about to do by a text.
//
//   check_same_text(description, group, {.code = "data.loaders-differ", .what = "the loader"});
//   const Disagreement found = find_disagreement(texts_of_ranks);    // texts that are known already
//
// The ranks of a group compare fingerprints first, and exchange the texts only if these differ. If
// all kinds of calls are checked by these functions, they also detect calls of different kinds.
// Thread rule: the functions with a group are collectives; the others are pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/process/group.h"
#include "hasten/process/same_text.h"

namespace hasten {

using Ranks = std::vector<std::int64_t>;

// Returns "rank 1" or "ranks 0, 2, 3". Names the first 16 ranks and the number of the others.
std::string ranks_text(const Ranks& ranks);

// Returns a hash of the bytes that detects accidental differences but not deliberate collisions.
std::int64_t fingerprint(const void* data, std::size_t size);

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

// Finds the ranks whose text differs from that of most ranks. `texts` holds the text of each rank;
// a rank without a text is left out.
Disagreement find_disagreement(const std::vector<std::optional<std::string>>& texts);

}  // namespace hasten
