// Counts the calls that change something below a folder, and kills the process in one of them or
// lets it fail.
//
//   watch_calls("/tmp/run", 12);                      // the twelfth call from now on kills this process
//   watch_calls("/tmp/run", 12, Fault::disk_full);    // it fails
//   watch_calls("/tmp/run");                          // only counts
//
// The program that links this file replaces the system's calls that open a file to create it,
// write, sync, rename, create and delete, also for the libraries that it uses. A process dies
// before the call takes place; of a write it completes the first half.
#pragma once

#include <string>

constexpr long kNever = -1;

enum class Fault {
  kill,
  io_error,     // EIO
  disk_full,    // ENOSPC
  read_only,    // EROFS
  short_write,  // a write takes half of the bytes and the next one fails with ENOSPC; else ENOSPC
  stays_full,   // ENOSPC, also for each later call that needs space
};

void watch_calls(const std::string& folder, long fault_at = kNever, Fault fault = Fault::kill);
// The calls since then.
long watched_calls();
