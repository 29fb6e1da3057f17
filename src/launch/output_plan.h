// File: launch/output_plan.h (internal)
// Where a rank's output goes, as the options say.
#pragma once

#include <cstddef>

#include "hasten/launch/launcher.h"
#include "launch/rank_output.h"

namespace hasten {

// Without tee and redirects: all is shown, and where there is a log_dir one file a rank has both
// outputs. With one of them: what they name is in files of its own, stdout.log and stderr.log, and
// what redirects names without tee is not shown.
OutputPlan output_plan(const LaunchOptions& options, const Round& round, std::size_t local_rank);

}  // namespace hasten
