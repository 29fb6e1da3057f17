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
// NAME=value after NAME=value, each with a NUL at its end. Empty where it may not be read, or
// cannot be within a second: the memory of a process that waits for a dead disk or a driver may be
// locked for ever.
std::string environment_of(pid_t shown);

}  // namespace hasten
