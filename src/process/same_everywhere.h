// File: process/same_everywhere.h (internal)
// Whether the processes of a group are about to do the same: a text each, compared by a number that
// travels in its place. What compares in this way tells even calls that differ in kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hasten/process/group.h"

namespace hasten {

// Tells contents apart, against accident and not against intent.
std::int64_t fingerprint(const void* data, std::size_t size);

struct Difference {
  std::int64_t rank = 0;         // the first that differs from rank 0
  std::string there, on_rank_0;  // the first line that differs; "nothing more" where one has ended
};

// Nothing where the text is the same in every process. A collective.
std::optional<Difference> difference_of(const std::string& text, const Group& group);

}  // namespace hasten
