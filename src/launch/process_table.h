// File: launch/process_table.h (internal)
// The processes that /proc shows, with numbers of this process's own PID namespace, which need not
// be the one that /proc was mounted for.
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
  pid_t process = -1;       // the number here, for kill(2)
  pid_t parent = -1;        // as shown
  char state = '?';         // Z: it has ended, and waits to be reaped
  std::uint64_t start = 0;  // in the clock's ticks since the machine was started
};

// Nothing where /proc does not show this process.
std::optional<ProcessEntry> own_entry();
// Empty where /proc does not show this process.
std::vector<ProcessEntry> process_table();
// As it is now; nothing where the process is gone.
std::optional<ProcessEntry> entry_of(pid_t shown);
// NAME=value after NAME=value, each with a NUL at its end. Empty where it may not be read. Does not
// return while the memory of the process is locked, as that of one that waits for a dead disk or a
// driver may be for ever.
std::string environment_of(pid_t shown);
// For each process, what `look` says of its environment: false where it may not be read, which this
// user may not for other users' processes, or cannot be within a second. `look` is called in
// another thread, perhaps after the return.
std::vector<bool> look_at_environments(const std::vector<pid_t>& shown,
                                       const std::function<bool(const std::string&)>& look);

}  // namespace hasten
