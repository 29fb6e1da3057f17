#include "trainer/restarted_job.h"

#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/training_state.h"
#include "hasten/launch/worker.h"
#include "hasten/options/environment.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJobFile = ".hasten-job";

// Returns an empty text if the job has no name of its own. torchrun calls every job "none".
std::string name_of_job(const Worker& worker) { return worker.job == "none" ? "" : worker.job; }

bool is_marked(const fs::path& folder, const std::string& job) {
  std::error_code error;
  return !job.empty() && fs::is_regular_file(folder / kJobFile, error) &&
         read_file(folder / kJobFile) == job;
}

}  // namespace

bool continues_by_itself(const fs::path& output_dir) {
  const config::Environment environment = config::whole_environment();
  const Worker worker = worker_of(environment);
  const bool continues = config::environment_flag(environment, kResumeVariable).value_or(false) ||
                         (worker.attempt > 0 && is_marked(output_dir, name_of_job(worker)));
  return continues && (!checkpoints(output_dir).empty() || has_damaged_checkpoints(output_dir));
}

bool is_of_restarted_job(const fs::path& checkpoint) {
  const Worker worker = worker_of(config::whole_environment());
  return worker.attempt > 0 && is_marked(checkpoint, name_of_job(worker)) &&
         has_training_state(checkpoint);
}

void mark_job(const fs::path& folder) {
  const std::string job = name_of_job(worker_of(config::whole_environment()));
  if (!job.empty()) write_file_atomically(folder / kJobFile, job);
}

}  // namespace hasten
