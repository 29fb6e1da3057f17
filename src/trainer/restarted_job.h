// File: trainer/restarted_job.h (internal)
// Decides whether a run continues by itself because its job was restarted.
//
//   if (should_resume_automatically(args)) args.resume_from_checkpoint = "true";
//   unmark_job(output_dir);     // before a new run begins, or is refused
//   mark_job(output_dir);       // the first start of a run, once the folder is its own
//   mark_job(checkpoint);       // each checkpoint that it saves
//   keep_begin_of_trackers(output_dir, positions);      // when a run begins at step 0
//   positions = begin_of_trackers(output_dir);          // in an attempt that begins it again
//
// A job that `hasten launch --max_restarts`, torchrun or Slurm restarts continues from the newest
// checkpoint in output_dir if an earlier attempt of the same job has begun the run. A file in the
// folder has the job's name. The user of torchrun chooses this name, so a later job may have the
// same one. Therefore the name of an earlier job is deleted before the folder is checked. With
// `hasten launch --resume`, any checkpoints in the folder count. Damaged checkpoints count as well,
// so that no run silently starts again from the beginning, unless they were there before the run
// began. A run that saves only its weights and may overwrite them starts over. A job that was
// started with a checkpoint continues from the newest one that it has saved itself, and from the
// given one until there is one. `hasten launch --resume` does not know which checkpoints that job
// has saved: it continues from the newest one in output_dir, and refuses a given checkpoint of the
// same folder that is not the newest. If there is no checkpoint, the run begins again, and its
// trackers take back what the earlier attempt has logged. Throws ConfigError "launch.environment"
// and "trainer.resume-point", and IoError "io.*". Thread rule: pure functions, apart from the file.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "hasten/options/training_arguments.h"

namespace hasten {

// Set to true by `hasten launch --resume`.
inline constexpr const char* kResumeVariable = "HASTEN_RESUME_RUNS";

bool should_resume_automatically(const TrainingArguments& args);
// True if an earlier attempt of this job has begun a run in the folder, or if the launcher has told
// the job to continue whatever run is there, and a job of a launcher has begun one.
bool belongs_to_this_job(const std::filesystem::path& output_dir);
void unmark_job(const std::filesystem::path& output_dir);
// True if a run that is to begin with the checkpoint `named` continues from this one instead: an
// earlier attempt of the job has saved it, or the launcher has told the job to continue the run in
// its folder, and `named` is in another folder.
bool replaces_named_checkpoint(const std::filesystem::path& checkpoint,
                               const std::filesystem::path& named);
// Throws ConfigError "trainer.resume-point" if the launcher has told the job to continue the run in
// output_dir, and resume_from_checkpoint names a checkpoint there that is not the newest.
void check_clear_resume_point(const TrainingArguments& args);
// Writes the job's name to the folder, if a launcher gave it one.
void mark_job(const std::filesystem::path& folder);
// Keeps the positions that the trackers have when the run begins, if a launcher gave the job a
// name. Does not throw IoError: the run begins without them, and a line is logged.
void keep_begin_of_trackers(const std::filesystem::path& output_dir,
                            const std::map<std::string, double>& positions);
// Returns the positions that an earlier attempt of this job has kept, or an empty map. Also returns
// an empty map after a run of this process has kept its own.
std::map<std::string, double> begin_of_trackers(const std::filesystem::path& output_dir);

}  // namespace hasten
