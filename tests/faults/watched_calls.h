// Counts the calls that change something below a folder. Kills the process at one of them, or makes
// that call fail.
//
//   watch_calls("/tmp/run", 12);                      // the twelfth call kills this process
//   watch_calls("/tmp/run", 12, Fault::disk_full);    // it fails
//   watch_calls("/tmp/run");                          // only counts
//
// A program that links this file replaces the system's functions that open a file to create it,
// write, sync, shorten, rename, create and delete. This also affects the libraries that the program
// uses. The process is killed before the call takes effect, but a write first writes half of its
// bytes.
#pragma once

#include <string>

constexpr long kNever = -1;

enum class Fault {
  kill,
  io_error,     // EIO
  disk_full,    // ENOSPC
  read_only,    // EROFS
  short_write,  // a write writes half; the next one fails with ENOSPC, as do other calls
  stays_full,   // ENOSPC, also for each later call that needs space
  slow_disk,    // the call and each later one take effect 0.5 ms later
  none,         // the call takes effect, and is only reported
};

// Creates the file `report` when the process arrives at the call, unless its name is empty.
void watch_calls(const std::string& folder, long fault_at = kNever, Fault fault = Fault::kill,
                 const std::string& report = "");
// From now on this process and its forks cannot swap two folders, as on NFS: renameat2() fails with
// EINVAL. They believe that their machine has this name, so they cannot tell whether a process that
// began under another name has ended. If `is_taken_for_killed`, another machine gives each folder
// that this process moves aside its name back once.
void act_on_file_server(const std::string& host_name, bool is_taken_for_killed = false);
// Returns the number of watched calls since watch_calls().
long watched_calls();
