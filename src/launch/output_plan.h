// File: launch/output_plan.h (internal)
// Decides from the options where a rank's output goes.
#pragma once

#include <cstddef>

#include "hasten/launch/launcher.h"
#include "launch/rank_output.h"

namespace hasten {

// Without `tee` and `redirects`, all output is shown, and if there is a log_dir, one file per rank
// stores both streams. With `tee` or `redirects`, the streams that they name are stored in
// stdout.log and stderr.log. Streams that only `redirects` names are not shown.
OutputPlan output_plan(const LaunchOptions& options, const Round& round, std::size_t local_rank);

}  // namespace hasten
