#include "trainer/output_folder.h"

#include <filesystem>

#include "base/file_calls.h"
#include "checkpoint/job_lock.h"
#include "formats/model_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "trainer/restarted_job.h"

namespace hasten {
namespace {

// The files that a saved model replaces, apart from shards of weights and tokenizers.
constexpr const char* kModelFiles[] = {"config.json", "trained.pt2", kSingleFileName,
                                       kAdapterFileName};
constexpr const char* kResultFiles[] = {"train_results.json", "eval_results.json",
                                        "test_results.json", "all_results.json",
                                        "predictions.safetensors"};

bool would_replace(const std::filesystem::path& output_dir, const std::filesystem::path& input) {
  std::error_code unknown;
  if (std::filesystem::equivalent(output_dir, input, unknown)) return true;
  for (const char* const name : kModelFiles) {
    if (std::filesystem::equivalent(output_dir / name, input, unknown)) return true;
  }
  return false;
}

// True if the path is one of the run's checkpoints, or lies in one of them.
bool is_in_checkpoint(const std::filesystem::path& output_dir, const std::filesystem::path& input) {
  std::error_code unknown;
  const auto inside =
      std::filesystem::weakly_canonical(input, unknown)
          .lexically_relative(std::filesystem::weakly_canonical(output_dir, unknown));
  if (unknown || inside.empty()) return false;
  const std::filesystem::path& folder = *inside.begin();
  return step_of_checkpoint(folder) >= 0 ||
         step_of_checkpoint(folder, str("abandoned-", kCheckpointPrefix)) >= 0;
}

[[noreturn]] void throw_input_lost(const TrainingArguments& args, const std::string& input,
                                   const char* why) {
  throw ConfigError("trainer.output-in-use",
                    {.what = "output_dir " + args.output_dir,
                     .got = "the place of " + input + ", from which the run starts",
                     .expected = str("another folder, because ", why),
                     .hint = "choose another output_dir"});
}

}  // namespace

bool continues_a_run(const TrainingArguments& args) {
  return !args.resume_from_checkpoint.empty() || should_resume_automatically(args);
}

void check_inputs_kept(const TrainingArguments& args, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (would_replace(args.output_dir, input))
      throw_input_lost(args, input, "the trained model would replace it");
    const bool deletes = args.overwrite_output_dir && !continues_a_run(args);
    if (deletes && is_in_checkpoint(args.output_dir, input))
      throw_input_lost(args, input, "overwrite_output_dir deletes the checkpoints");
  }
}

void check_no_saved_model(const TrainingArguments& args) {
  const std::filesystem::path folder = args.output_dir;
  if (args.overwrite_output_dir || !has_weights(folder)) return;
  // The weights that an earlier attempt has left are those of this job.
  if (continues_a_run(args) || belongs_to_this_job(folder)) return;
  if (!checkpoints(folder).empty()) return;
  unmark_job(folder);  // so that the next attempt of this job is refused as well
  throw ConfigError("trainer.output-in-use",
                    {.what = "output_dir " + folder.string(),
                     .got = "the weights of a model",
                     .expected = "an empty or new folder",
                     .hint = "choose another folder, or replace the model with "
                             "--overwrite_output_dir"});
}

void remove_old_results(const std::string& output_dir,
                        const std::function<void(const std::string&)>& report) {
  for (const char* const name : kResultFiles) {
    const std::filesystem::path file = std::filesystem::path(output_dir) / name;
    std::error_code error;
    std::filesystem::remove(file, error);
    if (error)
      report(str(file.string(), " is of an earlier run and was not deleted: ", error.message()));
  }
}

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
