// File: launch/job.h (internal)
// All processes of one launch, found by a variable in their environment: children of ranks have it
// too, whatever group or session they put themselves into.
#pragma once

#include <sys/types.h>

#include <string>

namespace hasten {

inline constexpr const char* kJobVariable = "HASTEN_JOB_ID";
// Where the launcher serves the job's keys and values: HOST:PORT.
inline constexpr const char* kStoreVariable = "HASTEN_STORE";

// A name that no other job on any machine has.
std::string new_job();

// Kills every process of the job but `spared`, until there is none; gives the number of them.
int kill_job(const std::string& job, pid_t spared = -1);

// A process of its own that waits for the launcher's end, however it comes, and then kills what is
// left of the job. Lives as long as the object; made before the first rank.
class Guardian {
 public:
  explicit Guardian(const std::string& job);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();

 private:
  int alive_ = -1;  // closed by the kernel when the launcher ends
  pid_t process_ = -1;
};

}  // namespace hasten
