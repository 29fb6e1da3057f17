// File: process/rank_options.h (internal)
#pragma once

#include <chrono>
#include <cstdint>

namespace hasten {

// Which rank of a group this is, and how long it waits for another.
struct RankOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

}  // namespace hasten
