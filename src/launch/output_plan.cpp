#include "launch/output_plan.h"

#include <algorithm>

#include "commands/output_streams.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

bool is_shown(const LaunchOptions& options, std::size_t local_rank) {
  if (options.local_ranks_filter.empty()) return true;
  const auto shown = split(options.local_ranks_filter, ',');
  return std::find(shown.begin(), shown.end(), std::to_string(local_rank)) != shown.end();
}

void split_streams(OutputPlan& plan, const LaunchOptions& options, std::size_t local_rank,
                   const std::filesystem::path& folder) {
  const auto local = static_cast<std::int64_t>(local_rank);
  const Streams tee = parse_streams("tee", options.tee),
                redirects = parse_streams("redirects", options.redirects);
  for (const int stream : {1, 2}) {
    const bool both = tee.has(local, stream), only_file = redirects.has(local, stream) && !both;
    if (both || only_file)
      plan.file[stream - 1] = folder / (stream == 1 ? "stdout.log" : "stderr.log");
    if (only_file) plan.shown[stream - 1] = false;
  }
}

}  // namespace

OutputPlan output_plan(const LaunchOptions& options, const Round& round, std::size_t local_rank) {
  const auto rank = round.first_rank + static_cast<std::int64_t>(local_rank);
  OutputPlan plan;
  if (round.world_size > 1) plan.prefix = str("[", rank, "] ");
  for (bool& each : plan.shown) each = is_shown(options, local_rank);
  if (options.log_dir.empty()) return plan;
  // A disk that has become full must not prevent a restart.
  if (round.attempt > 0) plan.log_error_policy = LogErrorPolicy::report;
  const auto folder = std::filesystem::path(options.log_dir) / str("attempt_", round.attempt);
  if (!options.tee.empty() || !options.redirects.empty()) {
    split_streams(plan, options, local_rank, folder / str("rank_", rank));
  } else {
    plan.file[0] = plan.file[1] = folder / str("rank_", rank, ".log");
  }
  return plan;
}

}  // namespace hasten
