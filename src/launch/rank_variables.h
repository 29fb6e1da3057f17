// File: launch/rank_variables.h (internal)
// What a process is told of its place, in torchrun's words and ours, whether it is started or
// forked.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hasten/launch/launcher.h"

namespace hasten {

// `job`: the mark by which everything that the launcher started is found.
std::vector<std::pair<std::string, std::string>> rank_variables(const Round& round,
                                                                std::int64_t local_rank,
                                                                std::int64_t max_restarts,
                                                                const std::string& job);

}  // namespace hasten
