// A process that holds the lock on a folder (base/folder_lock.h) until it is killed.
//
//   LockingProcess other(folder);
//   CHECK(code_of([&] { train_into(folder); }) == "io.folder-in-use");
//   other.kill();
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/folder_lock.h"

namespace hasten {

class LockingProcess {
 public:
  explicit LockingProcess(const std::filesystem::path& folder, const std::string& job = "") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    number_ = ::fork();
    REQUIRE(number_ >= 0);
    if (number_ == 0) {
      const auto lock = FolderLock::acquire(
          folder, {.job = job, .report = [](const std::string&) { ::_exit(1); }});
      if (::write(ends[1], "l", 1) == 1) ::pause();
      ::_exit(1);
    }
    ::close(ends[1]);
    char byte = 0;
    REQUIRE(::read(ends[0], &byte, 1) == 1);
    ::close(ends[0]);
  }
  LockingProcess(const LockingProcess&) = delete;
  LockingProcess& operator=(const LockingProcess&) = delete;
  ~LockingProcess() {
    kill();
    ::waitpid(number_, nullptr, 0);
  }

  pid_t number() const { return number_; }
  // The process may still be ending when the call returns.
  void kill() const { ::kill(number_, SIGKILL); }

 private:
  pid_t number_ = -1;
};

}  // namespace hasten
