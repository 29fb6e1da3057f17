// File: launch/job.h (internal)
// All processes of one launch, found by a variable in their environment: children of ranks have it
// too, whatever group or session they put themselves into.
//
//   JobProcesses processes{.job = new_job_below(std::getenv(kJobVariable))};
//   Guardian guardian(processes);
//   ... ranks run; on SIGCHLD: guardian.replace_if_ended() ...
//   kill_job(processes);
//
// Thread rule: the launcher's own thread; the first guardian is made before there are others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "launch/process_handle.h"

namespace hasten {

inline constexpr const char* kJobVariable = "HASTEN_JOB_ID";
// Where the launcher serves the job's keys and values: HOST:PORT.
inline constexpr const char* kStoreVariable = "HASTEN_STORE";

// A name that no other job on any machine has.
std::string new_job();
// The name of a job that runs inside of another one's rank: OUTER.NEW, so that the outer one's end
// is the inner one's too. `outer` is null or empty where there is none.
std::string new_job_below(const char* outer);

// Which processes are the job's.
struct JobProcesses {
  std::string job;           // those with its name, or that of a job below it
  bool descendants = false;  // and all that are below this process
  pid_t spared = -1;         // the guardian
  // When the launcher was started, in ticks: older processes do not belong to the job. Empty: the
  // start of the process that asks.
  std::optional<std::uint64_t> since{};
};

// Kills every process of the job but this one, until there is none or half a second is over.
// Returns the number of them. Throws nothing.
int kill_job(const JobProcesses& processes);

// Kills what is left of a job when it goes out of scope, however that comes.
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

// A process of its own that waits for the launcher's end, however it comes, and then kills what is
// left of the job. Lives as long as the object; made before the first rank.
class Guardian {
 public:
  // Enters itself as `spared`, and the launcher's start as `since`. Throws IoError "launch.start"
  // where the system refuses a process or a pipe: nothing would then end what a killed launcher
  // leaves.
  explicit Guardian(JobProcesses& processes);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

  pid_t process() const { return processes_.spared; }
  // Starts another one where somebody has killed it. Returns a sentence for people, or an empty
  // text where there is nothing new to report. Throws nothing: a start that fails is tried again at
  // the next call.
  std::string replace_if_ended();

 private:
  bool has_ended();
  int start();  // errno, or 0
  void end();

  JobProcesses& processes_;
  std::optional<ProcessHandle> handle_;  // empty: there is no guardian now
  int alive_ = -1;                       // closed by the kernel when the launcher ends
  bool failure_is_told_ = false;
};

}  // namespace hasten
