// File: process/consensus/rank_options.h (internal)
#pragma once

#include <chrono>
#include <cstdint>

namespace hasten {

// The rank of this process in a group of `size` ranks, and how long it waits for another rank.
struct RankOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

}  // namespace hasten
