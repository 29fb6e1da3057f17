// File: cli/test_parts.h
// The tiny programs that `hasten test` starts through a launcher, to see how the launcher treats
// them. Each is this command itself, called as `hasten test --as NAME`.
#pragma once

#include <sys/types.h>

#include <string>

#include "hasten/launch/worker.h"

namespace hasten::cli {

inline constexpr const char* kAs = "--as";
inline constexpr const char* kLastWords = "no such row: 4711";
inline constexpr int kCodeOfFailure = 7;

// Runs a part and returns its exit code. tells: prints its line. killed-once: rank 1 kills itself
// in the first attempt. fails: rank 1 prints kLastWords and ends with kCodeOfFailure. stays: runs
// for ever, with a child in a session of its own.
int test_part(const std::string& name);

// Prints a line that says which part this is, with the time.
void tell_part(const Worker& worker, pid_t child = 0);

}  // namespace hasten::cli
