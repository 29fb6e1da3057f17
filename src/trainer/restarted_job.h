// File: trainer/restarted_job.h (internal)
// Decides whether a run continues by itself because its job was restarted.
//
//   if (should_resume_automatically(args)) args.resume_from_checkpoint = "true";
//   unmark_job(output_dir);     // before a new run begins, or is refused
//   mark_job(output_dir);       // the first start of a run, once the folder is its own
//   mark_job(checkpoint);       // each checkpoint that it saves
//
// A job that `hasten launch --max_restarts`, torchrun or Slurm restarts continues from the newest
// checkpoint in output_dir if an earlier attempt of the same job has begun the run. A file in the
// folder has the job's name. The user of torchrun chooses this name, so a later job may have the
// same one. Therefore the name of an earlier job is deleted before the folder is checked. With
// `hasten launch --resume`, any checkpoints in the folder count. Damaged checkpoints count as well,
// so that no run silently starts again from the beginning, unless they were there before the run
// began. A run that saves only its weights and may overwrite them starts over. A job that was
// started with a checkpoint continues from the newest one that it has saved itself, and from the
// given one until there is one. Throws ConfigError "launch.environment",
// IoError "io.*". Thread rule: pure functions, apart from the file.
#pragma once

#include <filesystem>

#include "hasten/options/training_arguments.h"

namespace hasten {

// Set to true by `hasten launch --resume`.
inline constexpr const char* kResumeVariable = "HASTEN_RESUME_RUNS";

bool should_resume_automatically(const TrainingArguments& args);
void unmark_job(const std::filesystem::path& output_dir);
// True if an earlier attempt of this job has saved the checkpoint, and a run can continue from it.
bool is_from_restarted_job(const std::filesystem::path& checkpoint);
// Writes the job's name to the folder, if a launcher gave it one.
void mark_job(const std::filesystem::path& folder);

}  // namespace hasten
