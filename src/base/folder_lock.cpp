#include "base/folder_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_calls.h"
#include "base/process_state.h"
#include "base/unfinished_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using LockClock = std::chrono::steady_clock;

// A process that has just been killed may need this long until it has ended.
constexpr auto kWaitForRunning = milliseconds(500);
constexpr auto kWaitForEnd = std::chrono::seconds(30);
// A file server releases the locks of a machine that has failed at the end of its lease, which is
// 90 seconds unless the server says otherwise.
constexpr auto kWaitForLease = std::chrono::seconds(100);
constexpr auto kWaitBeforeReport = std::chrono::seconds(1);
constexpr auto kPause = milliseconds(20);

// The process that holds a lock, as it has described itself in the file. It is empty while the
// holder writes the file, or if the holder could not write it.
struct Holder {
  std::optional<TaggedProcess> process;
  std::string host, job;
};

void write_holder(int file, const std::string& job) {
  const std::string text = str(writer_tag(), '\n', host_name(), '\n', job, '\n');
  // The lock holds without this text, for example on a full disk.
  if (::ftruncate(file, 0) == 0) static_cast<void>(write_all(file, text));
}

Holder read_holder(const fs::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const IoError&) {  // the holder has just deleted it
  }
  std::vector<std::string> lines = split(text, '\n');
  lines.resize(std::max<std::size_t>(lines.size(), 3));
  return {.process = process_of_tag(lines[0]), .host = lines[1], .job = lines[2]};
}

std::string name_of_holder(const Holder& holder) {
  if (!holder.process) return "another process";
  return str("process ", holder.process->pid, " on ", holder.host);
}

bool is_earlier_attempt(const Holder& holder, const FolderLockRequest& request) {
  return request.attempt > 0 && !request.job.empty() && holder.job == request.job;
}

// Returns how long to wait for the end of the holder.
milliseconds patience_with(const Holder& holder, const FolderLockRequest& request) {
  const bool follows = request.continues || is_earlier_attempt(holder, request);
  const bool is_visible = holder.process && holder.process->is_visible;
  milliseconds patience = kWaitForRunning;
  if (follows) patience = is_visible ? kWaitForEnd : kWaitForLease;
  if (is_visible && holder.process->has_ended) patience = kWaitForEnd;
  return std::min(patience, request.longest_wait);
}

[[noreturn]] void throw_in_use(const fs::path& folder, const Holder& holder) {
  const bool is_elsewhere = holder.process && !holder.process->is_visible;
  throw IoError("io.folder-in-use",
                {.what = "the folder " + folder.string(),
                 .got = name_of_holder(holder) + ", which writes its checkpoints there",
                 .expected = "one job at a time",
                 .hint = str("wait until that job has ended, or choose another folder",
                             is_elsewhere ? str("; if ", holder.host, " has failed, delete ",
                                                (folder / kLockFile).string())
                                          : "")});
}

// True if the open file is the one that the path names now.
bool has_path(int file, const fs::path& path) {
  struct stat own {
  }, named{};
  return ::fstat(file, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

// Opens the file and locks it. Returns 0 or an errno, which is EWOULDBLOCK if another process holds
// the lock.
int lock_file(const fs::path& path, Descriptor& locked) {
  constexpr int kMaxTries = 100;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    Descriptor file(open_file(path, O_RDWR | O_CREAT, 0666));
    if (file.get() < 0) return errno;
    int failed;
    do {
      failed = ::flock(file.get(), LOCK_EX | LOCK_NB);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) return errno;
    // The holder before may have deleted this file meanwhile, and a third process may have locked
    // a new one.
    if (has_path(file.get(), path)) {
      locked = std::move(file);
      return 0;
    }
  }
  return ESTALE;
}

}  // namespace

struct FolderLock::LocksOfProcess {
  std::mutex mutex;
  std::map<std::string, FolderLock*> held;  // by the folder's path
  std::set<std::string> given_up;           // the folders that this process uses without a lock
  bool has_reported_no_locks = false;
};

// The object is never destroyed, because a save in the background may still run while the process
// exits.
FolderLock::LocksOfProcess& FolderLock::locks_of_process() {
  static auto& all = *new LocksOfProcess;
  return all;
}

// A fork would otherwise keep the lock after the end of this process.
void FolderLock::release_in_forks() {
  [[maybe_unused]] static const int registered = ::pthread_atfork(
      [] { locks_of_process().mutex.lock(); }, [] { locks_of_process().mutex.unlock(); },
      [] {
        for (const auto& [folder, lock] : locks_of_process().held) lock->file_.close();
        locks_of_process().held.clear();
        locks_of_process().mutex.unlock();
      });
}

// Returns the lock of this process on the folder, with the file that is locked now. All who share
// an earlier lock on a folder of this name get the new one. The caller holds the mutex.
std::shared_ptr<FolderLock> FolderLock::share_or_make(const std::string& folder, Descriptor file) {
  LocksOfProcess& all = locks_of_process();
  const auto held = all.held.find(folder);
  if (held != all.held.end()) {
    if (auto shared = held->second->weak_from_this().lock()) {
      shared->file_ = std::move(file);
      return shared;
    }
  }
  std::shared_ptr<FolderLock> own(new FolderLock(folder, std::move(file)));
  all.held[folder] = own.get();
  return own;
}

std::shared_ptr<FolderLock> FolderLock::acquire(const fs::path& given,
                                                const FolderLockRequest& request) {
  std::error_code error;
  fs::path folder = fs::canonical(given, error);
  if (error) folder = fs::absolute(given);
  LocksOfProcess& all = locks_of_process();
  release_in_forks();
  const auto began = LockClock::now();
  for (bool has_reported = false;; std::this_thread::sleep_for(kPause)) {
    std::unique_lock lock(all.mutex);
    const auto held = all.held.find(folder.string());
    // The lock stays with a folder that is renamed, and another folder may have its name now.
    if (held != all.held.end() && has_path(held->second->file_.get(), folder / kLockFile)) {
      if (auto shared = held->second->weak_from_this().lock()) return shared;
    }
    if (all.given_up.contains(folder.string())) return nullptr;
    Descriptor file;
    const int failure = lock_file(folder / kLockFile, file);
    if (failure == 0) {
      write_holder(file.get(), request.job);
      return share_or_make(folder.string(), std::move(file));
    }
    if (failure != EWOULDBLOCK) {
      all.given_up.insert(folder.string());
      const bool reports = !std::exchange(all.has_reported_no_locks, true);
      lock.unlock();
      if (reports) {
        request.report(str("the folder ", given.string(), " cannot be locked (",
                           std::generic_category().message(failure),
                           "): nothing prevents another job from writing to it at the same time"));
      }
      return nullptr;
    }
    lock.unlock();
    const Holder holder = read_holder(folder / kLockFile);
    const auto waited = LockClock::now() - began;
    const milliseconds patience = patience_with(holder, request);
    if (waited >= patience) {
      if (!is_earlier_attempt(holder, request)) throw_in_use(given, holder);
      lock.lock();
      all.given_up.insert(folder.string());
      lock.unlock();
      request.report(str("an earlier attempt of this job still holds the folder ", given.string(),
                         " (", name_of_holder(holder), "): this attempt continues without a lock"));
      return nullptr;
    }
    if (waited >= kWaitBeforeReport && !std::exchange(has_reported, true)) {
      request.report(str("the folder ", given.string(), " is in use by ", name_of_holder(holder),
                         ": waiting up to ",
                         std::chrono::duration_cast<std::chrono::seconds>(patience).count(),
                         " seconds for its end"));
    }
  }
}

FolderLock::FolderLock(std::string folder, Descriptor file)
    : folder_(std::move(folder)), owner_(::getpid()), file_(std::move(file)) {}

FolderLock::~FolderLock() {
  if (owner_ != ::getpid()) return;  // a fork
  LocksOfProcess& all = locks_of_process();
  const std::lock_guard lock(all.mutex);
  const auto held = all.held.find(folder_);
  if (held != all.held.end() && held->second == this) all.held.erase(held);
  const fs::path path = fs::path(folder_) / kLockFile;
  if (has_path(file_.get(), path)) ::unlink(path.c_str());
  // Closing it would keep the lock if a fork without handlers has a copy of the descriptor.
  static_cast<void>(::flock(file_.get(), LOCK_UN));
}

}  // namespace hasten
