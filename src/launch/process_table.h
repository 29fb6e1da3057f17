// File: launch/process_table.h (internal)
// The processes that /proc shows, with their numbers in this process's own PID namespace, which may
// differ from that of /proc.
//
//   for (const ProcessEntry& each : process_table())
//     if (each.parent_proc_pid == own_entry()->proc_pid) ...
//
// Throws nothing. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

struct ProcessEntry {
  pid_t proc_pid = -1;         // the number in /proc
  pid_t pid = -1;              // the number in this PID namespace, for kill(2)
  pid_t parent_proc_pid = -1;  // the parent's number in /proc
  char state = '?';            // as in /proc/PID/stat; Z: has ended and waits to be reaped
  std::uint64_t start = 0;     // in clock ticks since the machine's start
};

// Returns nothing if /proc does not show this process.
std::optional<ProcessEntry> own_entry();
// Returns an empty table if /proc does not show this process.
std::vector<ProcessEntry> process_table();
// Returns the process as it is now; nothing if it is gone.
std::optional<ProcessEntry> entry_of(pid_t proc_pid);
// Returns NAME=value strings, each with a NUL at its end; empty if the environment may not be read.
// Blocks while the memory of the process is locked, which is forever if the process waits for a
// dead disk or a driver.
std::string environment_of(pid_t proc_pid);
// Returns the result of `predicate` for the environment of each process. The result is false if the
// environment may not be read (a process of another user, unless this user is root), or if it
// cannot be read within a second. `predicate` is called in another thread, perhaps after this
// function has returned.
std::vector<bool> test_environments(const std::vector<pid_t>& proc_pids,
                                    const std::function<bool(const std::string&)>& predicate);

}  // namespace hasten
