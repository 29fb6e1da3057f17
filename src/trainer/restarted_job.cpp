#include "trainer/restarted_job.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/file_calls.h"
#include "base/json_number.h"
#include "base/strict_json.h"
#include "checkpoint/job_lock.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/launch/worker.h"
#include "hasten/options/detail/environment.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

using JobJson = nlohmann::json;

constexpr const char* kJobFile = ".hasten-job";
constexpr const char* kTrackersFile = ".hasten-trackers";

// The content of the marker: the name of the job that began the run in the folder, and the damaged
// checkpoints that an earlier run left there.
struct JobMarker {
  std::string job;
  std::set<std::string> damaged_before;
};

JobMarker read_marker(const fs::path& folder) {
  if (!path_exists(folder / kJobFile)) return {};
  const std::vector<std::string> lines = split(read_file(folder / kJobFile), '\n');
  return {.job = lines.front(), .damaged_before = {lines.begin() + 1, lines.end()}};
}

// True if an earlier attempt of this job has left the marker.
bool is_from_earlier_attempt(const Worker& worker, const JobMarker& marker) {
  return worker.attempt > 0 && !marker.job.empty() && marker.job == name_of_job(worker);
}

bool is_told_to_resume() {
  return config::environment_flag(config::whole_environment(), kResumeVariable).value_or(false);
}

// True if this job may continue the run in the folder that has the marker.
bool is_of_this_job(const JobMarker& marker) {
  return is_from_earlier_attempt(this_worker(), marker) || is_told_to_resume();
}

// The folders in which runs of this process have begun.
class BegunRuns {
 public:
  static void add(const fs::path& output_dir) {
    const std::lock_guard lock(own().mutex_);
    own().folders_.insert(fs::absolute(output_dir).lexically_normal());
  }
  static bool contains(const fs::path& output_dir) {
    const std::lock_guard lock(own().mutex_);
    return own().folders_.contains(fs::absolute(output_dir).lexically_normal());
  }

 private:
  static BegunRuns& own() {
    static auto& runs = *new BegunRuns;
    return runs;
  }
  std::mutex mutex_;
  std::set<fs::path> folders_;
};

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
  const JobMarker marker = read_marker(output_dir);
  return is_of_this_job(marker) && has_saved(output_dir, marker);
}

bool belongs_to_this_job(const fs::path& output_dir) {
  const JobMarker marker = read_marker(output_dir);
  return !marker.job.empty() && is_of_this_job(marker);
}

void unmark_job(const fs::path& output_dir) {
  std::error_code error;
  if (fs::exists(output_dir / kJobFile, error)) write_file_atomically(output_dir / kJobFile, "");
  const bool is_first = this_worker().attempt == 0;
  if (is_first && !is_told_to_resume()) fs::remove(output_dir / kTrackersFile, error);
}

bool replaces_named_checkpoint(const fs::path& checkpoint, const fs::path& named) {
  std::error_code unknown;
  const bool is_in_its_folder =
      fs::equivalent(checkpoint.parent_path(), fs::absolute(named).parent_path(), unknown);
  const bool may_replace = is_from_earlier_attempt(this_worker(), read_marker(checkpoint)) ||
                           (is_told_to_resume() && !is_in_its_folder);
  return may_replace && has_training_state(checkpoint);
}

void check_clear_resume_point(const TrainingArguments& args) {
  const fs::path named = args.resume_from_checkpoint;
  const std::vector<fs::path> all = checkpoints(args.output_dir);
  if (!is_told_to_resume() || all.empty()) return;
  std::error_code unknown;
  const bool is_one_of_them = std::any_of(all.begin(), all.end(), [&](const fs::path& each) {
    return fs::equivalent(each, named, unknown);
  });
  if (!is_one_of_them || fs::equivalent(all.back(), named, unknown)) return;
  throw ConfigError(
      "trainer.resume-point",
      {.what = "resume_from_checkpoint " + named.string() + ", with hasten launch --resume",
       .got =
           "later checkpoints in " + args.output_dir + ", up to " + all.back().filename().string(),
       .expected = "the newest checkpoint, from which --resume continues",
       .hint = "continue from it with --resume_from_checkpoint true, or go back to " +
               named.filename().string() + " without --resume"});
}

void mark_job(const fs::path& folder) {
  const std::string job = name_of_job(this_worker());
  if (job.empty()) return;
  std::vector<std::string> lines = {job};
  for (const fs::path& each : damaged_checkpoints(folder))
    lines.push_back(each.filename().string());
  write_file_atomically(folder / kJobFile, join(lines, "\n"));
}

void keep_begin_of_trackers(const fs::path& output_dir,
                            const std::map<std::string, double>& positions) {
  const std::string job = name_of_job(this_worker());
  if (job.empty() || positions.empty()) return;
  BegunRuns::add(output_dir);
  JobJson json = {{"job", job}, {"positions", JobJson::object()}};
  for (const auto& [key, number] : positions)
    json["positions"][key] = json_of_number<JobJson>(number);
  try {
    write_file_atomically(output_dir / kTrackersFile,
                          json.dump(2, ' ', false, JobJson::error_handler_t::replace) + "\n");
  } catch (const IoError& error) {
    log_line(
        str("hasten: warning: if the job is restarted without a checkpoint, its trackers may "
            "have values twice: ",
            error.what()));
  }
}

std::map<std::string, double> begin_of_trackers(const fs::path& output_dir) {
  const Worker worker = this_worker();
  std::error_code error;
  const bool exists = fs::exists(output_dir / kTrackersFile, error);
  if (!exists || BegunRuns::contains(output_dir)) return {};
  const JobJson json = read_json_or_discard<JobJson>(output_dir / kTrackersFile);
  if (!json.is_object() || !json.contains("job") || !json.contains("positions")) return {};
  if (!json["job"].is_string() || !json["positions"].is_object()) return {};
  const bool is_own = worker.attempt > 0 && json["job"].get<std::string>() == name_of_job(worker);
  if (!is_own && !is_told_to_resume()) return {};
  std::map<std::string, double> positions;
  for (const auto& [key, value] : json["positions"].items()) {
    if (const auto number = real_number_in(value)) positions[key] = *number;
  }
  return positions;
}

}  // namespace hasten
