// File: launch/rank_variables.h (internal)
// The variables that tell a started or forked process its rank, under the names of torchrun and of
// hasten.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/internal_api.h"
#include "hasten/launch/launcher.h"

namespace hasten {

using VariableList = std::vector<std::pair<std::string, std::string>>;

// `job` is the name by which the launcher's processes are found (job.h).
HASTEN_INTERNAL_API VariableList rank_variables(const Round& round, std::int64_t local_rank,
                                                std::int64_t max_restarts, const std::string& job);

}  // namespace hasten
