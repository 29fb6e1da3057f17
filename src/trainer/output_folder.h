// File: trainer/output_folder.h (internal)
// Checks and locks the output_dir of a run before the run begins its work.
//
//   check_inputs_kept(args, {"out/model"});            // hasten train only
//   const auto lock = lock_output_dir(args, report);   // null: there is no folder yet, or no lock
//   check_no_saved_model(args);                        // hasten train only
//   check_output_unused(args);
//
// The process that writes the checkpoints calls them. They do nothing if the folder does not exist
// yet. The lock prevents another job from training into the same folder at the same time
// (base/folder_lock.h). Throws ConfigError "trainer.output-in-use" and "launch.environment", and
// IoError "io.folder-in-use", "io.not-a-directory" and "io.not-writable". Thread rule: pure
// functions, apart from the files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
// Throws "trainer.output-in-use" if the run would delete one of these files and folders, from which
// it starts: its final model would replace them, or they are in a checkpoint that it overwrites. An
// empty path is no file.
HASTEN_INTERNAL_API void check_inputs_kept(const TrainingArguments& args,
                                           const std::vector<std::string>& inputs);
// Throws "trainer.output-in-use" if the folder has weights that the run would replace, although it
// neither continues nor overwrites the run that saved them. Checkpoints are left to
// check_output_unused(). Call it before that function, which deletes the name of an earlier job.
HASTEN_INTERNAL_API void check_no_saved_model(const TrainingArguments& args);
// True if the run continues from a checkpoint, because of its arguments or because its job was
// restarted.
HASTEN_INTERNAL_API bool continues_a_run(const TrainingArguments& args);
// Deletes the results and predictions of an earlier model: they are not those of the model that is
// saved next. A result that is missing beside that model is then work that is left. Reports a file
// that cannot be deleted, because the model must be saved in any case.
HASTEN_INTERNAL_API void remove_old_results(const std::string& output_dir,
                                            const std::function<void(const std::string&)>& report);

}  // namespace hasten
