// File: checkpoint/job_lock.h (internal)
// Locks a folder of checkpoints for the job of this process (base/folder_lock.h).
//
//   const auto lock = lock_for_job("out", /*continues=*/false, report);   // null: it has no lock
//
// The process that writes the checkpoints calls it. A job that a launcher restarts is never refused
// because of its own earlier attempt. Throws IoError "io.folder-in-use", ConfigError
// "launch.environment". Thread rule: any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/folder_lock.h"
#include "hasten/launch/worker.h"

namespace hasten {

// Returns an empty text if the job has no name of its own. torchrun calls every job "none".
std::string name_of_job(const Worker& worker);

// `continues` is true if the job continues the run in the folder. `report` gets a sentence if the
// call waits for long, or if the folder cannot be locked.
std::shared_ptr<FolderLock> lock_for_job(const std::filesystem::path& folder, bool continues,
                                         const std::function<void(const std::string&)>& report);

}  // namespace hasten
