// File: launch/output_plan.h (internal)
// Decides from the options where a rank's output goes.
#pragma once

#include <cstddef>

#include "hasten/launch/launcher.h"
#include "launch/rank_output.h"

namespace hasten {

// Without `tee` and `redirects` both streams are shown, and if there is a log_dir, one file per
// rank keeps both. With one of these options, the streams that they name are kept in two files,
// stdout.log and stderr.log, and a stream that only `redirects` names is not shown. Ranks that
// local_ranks_filter does not name are never shown.
OutputPlan output_plan(const LaunchOptions& options, const Round& round, std::size_t local_rank);

}  // namespace hasten
