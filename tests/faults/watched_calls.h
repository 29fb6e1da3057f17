// Counts the calls that change something below a folder, and kills the process in one of them.
//
//   watch_calls("/tmp/run", 12);   // the twelfth call from now on kills this process
//   watch_calls("/tmp/run");       // only counts
//
// The program that links this file replaces the system's calls that open a file to create it, write,
// sync, rename, create and delete, also for the libraries that it uses. The process dies before the
// call takes place; of a write it completes the first half.
#pragma once

#include <string>

constexpr long kNever = -1;

void watch_calls(const std::string& folder, long kill_at = kNever);
// The calls since then.
long watched_calls();
