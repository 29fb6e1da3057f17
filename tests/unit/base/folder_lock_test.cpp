// The lock on a folder that two jobs must not use at the same time.
#include "base/folder_lock.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "unit/check_in_fork.h"
#include "unit/code_of.h"
#include "unit/locking_process.h"

namespace base_folder_lock_test {

using namespace hasten;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// A request that does not wait, and keeps what it reports.
struct Request {
  std::vector<std::string> reports;

  std::shared_ptr<FolderLock> acquire(const fs::path& folder, const std::string& job = "",
                                      std::int64_t attempt = 0) {
    return FolderLock::acquire(
        folder, {.job = job,
                 .attempt = attempt,
                 .longest_wait = 0ms,
                 .report = [this](const std::string& text) { reports.push_back(text); }});
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string message_of_refusal(const fs::path& folder) {
  Request request;
  try {
    request.acquire(folder);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("folder lock: another process is refused, and the error names the holder") {
  const TemporaryDirectory folder;
  const LockingProcess other(folder.path());
  const std::string message = message_of_refusal(folder.path());
  CHECK(contains(message, folder.path().string()));
  CHECK(contains(message, str("process ", other.number(), " on ", host_name())));
}

TEST_CASE("folder lock: a killed process keeps no lock, and its file has no effect") {
  const TemporaryDirectory folder;
  const LockingProcess other(folder.path());
  other.kill();
  Request request;
  // The process may need a moment for its end.
  const auto lock = FolderLock::acquire(
      folder.path(), {.report = [&](const std::string& text) { request.reports.push_back(text); }});
  CHECK(lock != nullptr);
  CHECK(request.reports.empty());
}

TEST_CASE("folder lock: the callers of one process share it until the last one releases it") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / kLockFile, link = folder.path() / "link";
  fs::create_directory_symlink(folder.path(), link);
  Request request;
  auto first = request.acquire(folder.path());
  auto second = request.acquire(link);  // another path of the same folder
  CHECK(first == second);
  first.reset();
  CHECK(fs::exists(file));
  second.reset();
  CHECK_FALSE(fs::exists(file));
  CHECK(request.acquire(folder.path()) != nullptr);
}

TEST_CASE("folder lock: a fork that outlives the holder does not keep the lock") {
  const TemporaryDirectory folder;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t holder = ::fork();
  REQUIRE(holder >= 0);
  if (holder == 0) {
    Request request;
    const auto lock = request.acquire(folder.path());
    const pid_t fork_of_holder = ::fork();
    if (fork_of_holder == 0) {
      const pid_t own = ::getpid();
      if (::write(ends[1], &own, sizeof own) == sizeof own) ::pause();
      ::_exit(1);
    }
    ::pause();
    ::_exit(1);
  }
  pid_t fork_of_holder = 0;
  REQUIRE(::read(ends[0], &fork_of_holder, sizeof fork_of_holder) == sizeof fork_of_holder);
  ::kill(holder, SIGKILL);
  REQUIRE(::waitpid(holder, nullptr, 0) == holder);
  Request request;
  CHECK(code_of([&] { request.acquire(folder.path()); }) == "none");
  ::kill(fork_of_holder, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("folder lock: a restarted job is not refused because of its own earlier attempt") {
  const TemporaryDirectory folder;
  const LockingProcess earlier(folder.path(), "nightly");
  Request request;
  CHECK(code_of([&] { request.acquire(folder.path(), "nightly", 0); }) == "io.folder-in-use");
  CHECK(code_of([&] { request.acquire(folder.path(), "weekly", 1); }) == "io.folder-in-use");
  CHECK(request.acquire(folder.path(), "nightly", 1) == nullptr);
  CHECK(request.acquire(folder.path(), "nightly", 1) == nullptr);
  REQUIRE(request.reports.size() == 1);
  CHECK(contains(request.reports.front(), "continues without a lock"));
}

TEST_CASE("folder lock: folders that cannot be locked are used without a lock, reported once") {
  const TemporaryDirectory folder;
  CHECK(check_in_fork([&] {  // a process reports it only once
    Request request;
    bool locked = false;
    for (const char* const name : {"a", "b"}) {
      fs::create_directories(folder.path() / name / kLockFile);  // a folder cannot be opened
      for (int call = 0; call < 2; ++call)
        locked = locked || request.acquire(folder.path() / name) != nullptr;
    }
    return !locked && request.reports.size() == 1;
  }));
}

TEST_CASE("folder lock: a lock file that was deleted does not let two processes hold the lock") {
  const TemporaryDirectory folder;
  Request request;
  auto lock = request.acquire(folder.path());
  fs::remove(folder.path() / kLockFile);
  const LockingProcess other(folder.path());  // the user has said that this process is gone
  lock.reset();                               // does not delete the file of the other process
  CHECK(message_of_refusal(folder.path()) != "");
}

TEST_CASE("folder lock: a new folder with the name of a renamed one is locked by the next call") {
  const TemporaryDirectory parent;
  const fs::path folder = parent.path() / "out", renamed = parent.path() / "renamed";
  fs::create_directory(folder);
  Request request;
  auto lock = request.acquire(folder);
  fs::rename(folder, renamed);
  fs::create_directory(folder);
  {
    const LockingProcess other(folder);
    CHECK(code_of([&] { request.acquire(folder); }) == "io.folder-in-use");
  }
  CHECK(request.acquire(folder) == lock);  // for all who share it
  CHECK(check_in_fork([&] { return message_of_refusal(folder) != ""; }));
  CHECK(check_in_fork([&] { return Request().acquire(renamed) != nullptr; }));
  lock.reset();
  CHECK_FALSE(fs::exists(folder / kLockFile));
}

}  // namespace base_folder_lock_test
