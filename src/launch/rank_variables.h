// File: launch/rank_variables.h (internal)
// The environment variables that give a process its place in the job, with torchrun's names and
// hasten's own, whether the process is started or forked.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hasten/launch/launcher.h"

namespace hasten {

// `job`: the name by which everything that the launcher has started is found (job.h).
std::vector<std::pair<std::string, std::string>> rank_variables(const Round& round,
                                                                std::int64_t local_rank,
                                                                std::int64_t max_restarts,
                                                                const std::string& job);

}  // namespace hasten
