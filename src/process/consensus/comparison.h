// File: process/consensus/comparison.h (internal)
// Finds out whether all ranks are about to do the same thing, and which ranks differ. A rank
// describes in a text what it is about to do.
//
//   check_same_text(description, group, {.code = "data.loaders-differ", .what = "the loader"});
//   const Disagreement found = find_disagreement(texts_of_ranks);  // texts that are known already
//
// The ranks of a group compare fingerprints first, and exchange the texts only if these differ. If
// every kind of call is checked with these functions, they also detect ranks that make different
// kinds of calls. Thread rule: the functions with a group are collectives; the others are pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/process/detail/same_text.h"
#include "hasten/process/group.h"

namespace hasten {

using Ranks = std::vector<std::int64_t>;

// Returns "rank 1" or "ranks 0, 2, 3". Names at most 16 ranks, and then the number of the remaining
// ones.
std::string ranks_text(const Ranks& ranks);

// Returns a hash of the bytes that detects accidental differences but not deliberate collisions.
std::int64_t fingerprint(const void* data, std::size_t size);

struct Disagreement {
  // The ranks whose text differs; empty if all texts are equal.
  Ranks different_ranks;
  // The text of the first of these ranks.
  std::string first_different_text;
  // The ranks with the most frequent text. In a tie, the group of ranks that contains the lowest
  // rank.
  Ranks majority_ranks;
  // The most frequent text.
  std::string majority_text;
};

// Finds the ranks whose text differs from the most frequent text. `texts` holds the text of each
// rank. Ranks without a text are ignored.
Disagreement find_disagreement(const std::vector<std::optional<std::string>>& texts);

}  // namespace hasten
