// File: launch/job.h (internal)
// All processes of one launch, found by a variable in their environment: children of ranks have it
// too, whatever group or session they put themselves into.
//
//   const std::string job = new_job_below(std::getenv(kJobVariable));
//   const Guardian guardian(job);
//   const JobProcesses processes{.job = job, .spared = guardian.process()};
//   ... ranks run ...
//   kill_job(processes);
//
// Thread rule: the launcher's own thread; the guardian is made before there are others.
#pragma once

#include <sys/types.h>

#include <string>

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
  pid_t spared = -1;
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
  // Throws IoError "launch.start" where the system refuses a process or a pipe: nothing would then
  // end what a killed launcher leaves.
  explicit Guardian(const std::string& job);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

  pid_t process() const { return process_; }

 private:
  int alive_ = -1;  // closed by the kernel when the launcher ends
  pid_t process_ = -1;
};

}  // namespace hasten
