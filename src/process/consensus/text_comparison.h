// File: process/consensus/text_comparison.h (internal)
// Checks whether the processes of a group are about to do the same thing, which each describes by a
// text. A fingerprint of the text is exchanged first. If all kinds of calls are checked by this
// function, it also detects calls of different kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hasten/process/group.h"

namespace hasten {

// Returns a hash of the bytes that detects accidental differences but not deliberate collisions.
std::int64_t fingerprint(const void* data, std::size_t size);

struct Difference {
  // The first rank whose text differs from that of rank 0.
  std::int64_t rank = 0;
  // The first line that differs, in each of the two texts; "no further line" if a text has ended.
  std::string on_rank, on_rank_0;
};

// Returns nothing if the text is the same in every process. This is a collective.
std::optional<Difference> find_difference(const std::string& text, const Group& group);

}  // namespace hasten
