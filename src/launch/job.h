// File: launch/job.h (internal)
// Finds all processes of one launch by a variable in their environment. Children of ranks inherit
// it, even in a different process group or session.
//
//   JobProcesses processes{.job = new_inner_job_name(std::getenv(kJobVariable))};
//   CleanupProcess cleanup_process(processes);
//   ... ranks run; on SIGCHLD: cleanup_process.replace_if_ended() ...
//   kill_job(processes);
//
// Thread rule: the launcher's own thread. The CleanupProcess is constructed before there are other
// threads.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "base/internal_api.h"

namespace hasten {

inline constexpr const char* kJobVariable = "HASTEN_JOB_ID";
// HOST:PORT at which the launcher serves the job's keys and values.
inline constexpr const char* kStoreVariable = "HASTEN_STORE";

// Returns a random name that no other job on any machine has.
HASTEN_INTERNAL_API std::string new_job_name();
// Returns the name of a job inside a rank of `outer`: OUTER.NEW, so that ending the outer job also
// ends the inner one. Returns new_job_name() if `outer` is null or empty.
std::string new_inner_job_name(const char* outer);

// Determines which processes belong to a job.
struct JobProcesses {
  std::string job;           // processes with its name, or the name of a job inside it
  bool descendants = false;  // and all descendants of this process
  pid_t cleanup_pid = -1;    // the cleanup process, which is not killed
  // The launcher's start in clock ticks; older processes do not belong to the job. If unset, the
  // start of the calling process is used.
  std::optional<std::uint64_t> launcher_start{};
};

// Kills every process of the job except this one. Looks again every 10 ms until there is none, at
// most 50 times. Returns the number of processes that it has killed. Throws nothing.
int kill_job(const JobProcesses& processes);

// Kills the remaining processes of a job when it goes out of scope, also because of an exception.
class JobCleanup {
 public:
  explicit JobCleanup(const JobProcesses& processes) : processes_(processes) {}
  JobCleanup(const JobCleanup&) = delete;
  JobCleanup& operator=(const JobCleanup&) = delete;
  ~JobCleanup() {
    if (!done_) kill_job(processes_);
  }

  void run() {
    kill_job(processes_);
    done_ = true;
  }

 private:
  const JobProcesses& processes_;
  bool done_ = false;
};

// A process that waits until the launcher ends for any reason, and then kills the remaining
// processes of the job. It lives as long as the object, which must be constructed before the first
// rank.
class CleanupProcess {
 public:
  // Sets `cleanup_pid` and `launcher_start` in `processes`, which must live longer. Throws IoError
  // "launch.start" if the system refuses a process or a pipe, because then nothing would end the
  // processes that a killed launcher leaves behind.
  explicit CleanupProcess(JobProcesses& processes);
  CleanupProcess(const CleanupProcess&) = delete;
  CleanupProcess& operator=(const CleanupProcess&) = delete;
  ~CleanupProcess();

  pid_t process() const { return processes_.cleanup_pid; }
  // Starts another cleanup process if somebody has killed this one. Returns a message for the user,
  // or an empty string if there is nothing new. Throws nothing. If a start fails, the next call
  // tries again.
  std::string replace_if_ended();

 private:
  bool has_ended() const;
  int start();  // returns errno, or 0
  void end();

  JobProcesses& processes_;
  Descriptor pipe_;                      // the kernel closes it when the launcher ends
  std::optional<ChildProcess> process_;  // empty if there is no cleanup process now
  bool failure_is_reported_ = false;
};

}  // namespace hasten
