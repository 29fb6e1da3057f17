#include "trainer/restarted_job.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/job_lock.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/launch/worker.h"
#include "hasten/options/detail/environment.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJobFile = ".hasten-job";

// The content of the marker: the name of the job that began the run in the folder, and the damaged
// checkpoints that an earlier run left there.
struct JobMarker {
  std::string job;
  std::set<std::string> damaged_before;
};

JobMarker read_marker(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / kJobFile, error)) return {};
  const std::vector<std::string> lines = split(read_file(folder / kJobFile), '\n');
  return {.job = lines.front(), .damaged_before = {lines.begin() + 1, lines.end()}};
}

// True if an earlier attempt of this job has left the marker.
bool is_from_earlier_attempt(const Worker& worker, const JobMarker& marker) {
  return worker.attempt > 0 && !marker.job.empty() && marker.job == name_of_job(worker);
}

// True if the run in the folder has saved a checkpoint, whole or damaged.
bool has_saved(const fs::path& output_dir, const JobMarker& marker) {
  const std::vector<fs::path> damaged = damaged_checkpoints(output_dir);
  return !checkpoints(output_dir).empty() ||
         std::any_of(damaged.begin(), damaged.end(), [&](const fs::path& each) {
           return !marker.damaged_before.contains(each.filename().string());
         });
}

}  // namespace

bool should_resume_automatically(const TrainingArguments& args) {
  // A run cannot continue from weights alone, and it may replace them.
  if (args.save_only_model && args.overwrite_output_dir) return false;
  const fs::path output_dir = args.output_dir;
  const config::Environment environment = config::whole_environment();
  const Worker worker = worker_of(environment);
  const JobMarker marker = read_marker(output_dir);
  const bool continues = is_from_earlier_attempt(worker, marker) ||
                         config::environment_flag(environment, kResumeVariable).value_or(false);
  return continues && has_saved(output_dir, marker);
}

void unmark_job(const fs::path& output_dir) {
  std::error_code error;
  if (fs::exists(output_dir / kJobFile, error)) write_file_atomically(output_dir / kJobFile, "");
}

bool is_from_restarted_job(const fs::path& checkpoint) {
  const Worker worker = worker_of(config::whole_environment());
  return is_from_earlier_attempt(worker, read_marker(checkpoint)) && has_training_state(checkpoint);
}

void mark_job(const fs::path& folder) {
  const std::string job = name_of_job(worker_of(config::whole_environment()));
  if (job.empty()) return;
  std::vector<std::string> lines = {job};
  for (const fs::path& each : damaged_checkpoints(folder))
    lines.push_back(each.filename().string());
  write_file_atomically(folder / kJobFile, join(lines, "\n"));
}

}  // namespace hasten
