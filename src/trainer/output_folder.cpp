#include "trainer/output_folder.h"

#include <filesystem>

#include "checkpoint/job_lock.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "trainer/restarted_job.h"

namespace hasten {
namespace {

bool continues_a_run(const TrainingArguments& args) {
  return !args.resume_from_checkpoint.empty() || should_resume_automatically(args);
}

}  // namespace

std::shared_ptr<FolderLock> lock_output_dir(const TrainingArguments& args,
                                            const std::function<void(const std::string&)>& report) {
  std::error_code error;
  if (!std::filesystem::exists(args.output_dir, error)) return nullptr;
  check_writable_directory(args.output_dir);
  return lock_for_job(args.output_dir, continues_a_run(args), report);
}

void check_output_unused(const TrainingArguments& args) {
  const std::filesystem::path folder = args.output_dir;
  std::error_code error;
  if (!std::filesystem::exists(folder, error) || continues_a_run(args)) return;
  unmark_job(folder);
  if (args.overwrite_output_dir || checkpoints(folder).empty()) return;
  throw ConfigError("trainer.output-in-use",
                    {.what = "output_dir " + folder.string(),
                     .got = "the checkpoints of another run",
                     .expected = "an empty or new folder",
                     .hint = "resume with --resume_from_checkpoint true, choose another "
                             "folder, or start over with --overwrite_output_dir"});
}

}  // namespace hasten
