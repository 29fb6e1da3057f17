// File: cli/test_parts.h
// The tiny programs that `hasten test` has a launcher start, to see what becomes of them: this
// command itself, called `hasten test --as NAME`.
#pragma once

#include <sys/types.h>

#include <string>

#include "hasten/launch/worker.h"

namespace hasten::cli {

inline constexpr const char* kAs = "--as";
inline constexpr const char* kLastWords = "no such row: 4711";
inline constexpr int kCodeOfFailure = 7;

// tells: which it is. killed-once: rank 1 kills itself at the first attempt. fails: rank 1 ends
// with a code and last words. stays: for ever, with a child in a session of its own. Gives the exit
// code.
int test_part(const std::string& name);

// A line that says which part this is, with the time.
void tell_part(const Worker& worker, pid_t child = 0);

}  // namespace hasten::cli
