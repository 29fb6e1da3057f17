// File: base/process_state.h (internal)
// Identifies a process and its machine, and determines whether it has ended, for processes that
// cannot use waitpid() because they are not children of each other.
//
//   if (has_ended(identity)) stop();     // the other process has sent ProcessIdentity::own()
//
// Thread rule: any thread. Throws nothing but std::bad_alloc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/internal_api.h"

namespace hasten {

// Returns this machine's name.
HASTEN_INTERNAL_API std::string host_name();

// Returns a text that identifies the running kernel; empty if it is unknown.
std::string boot_id();

// Returns a text that is the same in two processes if they see each other, so that a PID means the
// same process to both. It identifies the running kernel and the container.
HASTEN_INTERNAL_API std::string pid_namespace_id();

// Identifies a process. The number alone is not enough, because the system reuses it after the
// process has ended.
struct HASTEN_INTERNAL_API ProcessIdentity {
  std::int64_t number = 0;
  std::uint64_t started = 0;  // in clock ticks since the machine was started

  static ProcessIdentity own();
};

// Returns the content of a file below /proc. If the process that the file describes ends meanwhile,
// returns the part that was read before. (A std::ifstream would throw, because the read fails with
// ESRCH.)
std::string proc_file_content(const std::string& path);

// The fields of /proc/PID/stat that hasten reads.
struct ProcessStatus {
  char state = 0;  // a letter as in proc(5)
  std::int64_t parent = 0;
  std::int64_t threads = 0;
  std::uint64_t started = 0;  // in clock ticks since the machine was started
};

// Returns the status of the process that has this number in /proc, or nothing if there is none.
HASTEN_INTERNAL_API std::optional<ProcessStatus> process_status(const std::string& number);

// Returns the state of a process as in proc(5): 'R', 'S', 'T' and so on. Returns 'Z' if it has
// ended but has not been waited for, and 0 if it does not exist or if another process has its
// number. A process counts as running ('S') if only its main thread has ended.
HASTEN_INTERNAL_API char process_state(const ProcessIdentity& process);

inline bool has_ended(char state) { return state == 0 || state == 'Z' || state == 'X'; }
inline bool has_ended(const ProcessIdentity& process) { return has_ended(process_state(process)); }

}  // namespace hasten
