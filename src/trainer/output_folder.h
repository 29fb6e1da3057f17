// File: trainer/output_folder.h (internal)
// Checks and locks the output_dir of a run before the run begins its work.
//
//   const auto lock = lock_output_dir(args, report);   // null: there is no folder yet, or no lock
//   check_output_unused(args);
//
// The process that writes the checkpoints calls both. They do nothing if the folder does not exist
// yet. The lock prevents another job from training into the same folder at the same time
// (base/folder_lock.h). Throws ConfigError "trainer.output-in-use" and "launch.environment", and
// IoError "io.folder-in-use", "io.not-a-directory" and "io.not-writable". Thread rule: pure
// functions, apart from the files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/folder_lock.h"
#include "base/internal_api.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

// Checks that the folder can be written, and locks it for as long as the object exists. `report` is
// that of lock_for_job (checkpoint/job_lock.h).
HASTEN_INTERNAL_API std::shared_ptr<FolderLock> lock_output_dir(
    const TrainingArguments& args, const std::function<void(const std::string&)>& report);
// Throws if the folder has the checkpoints of another run, which this one neither continues nor
// overwrites. If this run is a new one, the name of an earlier job is deleted in any case
// (trainer/restarted_job.h).
HASTEN_INTERNAL_API void check_output_unused(const TrainingArguments& args);

}  // namespace hasten
