// File: base/folder_lock.h (internal)
// Locks a folder, so that two jobs never write to it at the same time.
//
//   const auto lock = FolderLock::acquire("out", {.job = "nightly", .report = log_line});
//
// The lock is the operating system's (flock) on the file `.hasten-lock` in the folder, and this
// file names the process, the machine and the job that hold it. The system releases the lock when
// the process ends, in whatever way, and the destructor also deletes the file. A file that a killed
// process leaves has no effect. Forks do not keep the lock, and programs that the process starts do
// not get it. On network file systems the file server holds the lock: if a machine fails, the
// server waits for the end of the machine's lease before it releases the lock.
//
// One process has one lock on a folder, which all callers share. If the folder is renamed, the lock
// stays with it, so a job calls acquire() again before it writes: if another folder has the name
// now, this call locks that one, for all who share the lock. If the file system cannot lock, or if
// the file cannot be opened, acquire() reports this once and returns null: the lock never prevents
// a job from running without another job.
//
// Thread rule: any thread. `report` is called on the thread that calls acquire(). Throws IoError
// "io.folder-in-use".
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/internal_api.h"

namespace hasten {

inline constexpr const char* kLockFile = ".hasten-lock";

struct FolderLockRequest {
  // The name that a launcher has given to the job, or an empty text, and the number of its earlier
  // restarts. A restarted job does not stop for a lock that an earlier attempt holds: it waits for
  // the end of that attempt, and then continues without the lock.
  std::string job = {};
  std::int64_t attempt = 0;
  // True if the job continues what is in the folder. The job before it may just be ending, so
  // acquire() waits for it longer than it waits for other jobs.
  bool continues = false;
  std::chrono::milliseconds longest_wait = std::chrono::seconds(100);
  // Gets a sentence if acquire() waits for long, and if it returns null. Must not be empty.
  std::function<void(const std::string&)> report;
};

class HASTEN_INTERNAL_API FolderLock : public std::enable_shared_from_this<FolderLock> {
 public:
  // Locks the folder, which must exist. Returns null if it cannot be locked. Throws
  // "io.folder-in-use", with the name of the process and the machine, if another job holds it.
  static std::shared_ptr<FolderLock> acquire(const std::filesystem::path& folder,
                                             const FolderLockRequest& request);

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  struct LocksOfProcess;

  FolderLock(std::string folder, Descriptor file);
  static LocksOfProcess& locks_of_process();
  static std::shared_ptr<FolderLock> share_or_make(const std::string& folder, Descriptor file);
  static void release_in_forks();

  std::string folder_;
  pid_t owner_;  // a fork of this process does not own the lock
  Descriptor file_;
};

}  // namespace hasten
