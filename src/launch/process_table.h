// File: launch/process_table.h (internal)
// Lists the processes that /proc shows, with their numbers in this process's own PID namespace,
// which need not be the one for which /proc was mounted.
//
//   for (const ProcessEntry& each : process_table()) if (each.parent == own_entry.shown) ...
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
  pid_t shown = -1;         // the number in /proc
  pid_t process = -1;       // the number in this PID namespace, for kill(2)
  pid_t parent = -1;        // the parent's number in /proc
  char state = '?';         // as in /proc/PID/stat; Z: has ended and waits to be reaped
  std::uint64_t start = 0;  // in clock ticks since the machine's start
};

// Returns the entry of this process; nothing if /proc does not show it.
std::optional<ProcessEntry> own_entry();
// Returns all entries; empty if /proc does not show this process.
std::vector<ProcessEntry> process_table();
// Returns the present entry of a process; nothing if it has ended.
std::optional<ProcessEntry> entry_of(pid_t shown);
// Returns the environment as NAME=value texts, each with a NUL at its end; empty if it may not be
// read. Blocks while the memory of the process is locked, which can last for ever if that process
// waits for a dead disk or a driver.
std::string environment_of(pid_t shown);
// Returns for each process what `look` returns for its environment. The result is false for an
// environment that may not be read, as of other users' processes unless this user is root, or that
// cannot be read within a second. `look` is called in another thread, perhaps even after the
// return.
std::vector<bool> look_at_environments(const std::vector<pid_t>& shown,
                                       const std::function<bool(const std::string&)>& look);

}  // namespace hasten
