// File: cli/test_probes.h
// The small programs that `hasten test` starts through a launcher to check how the launcher handles
// them. Each of them is this command, called as `hasten test --probe NAME`.
#pragma once

#include <sys/types.h>

#include <string>

#include "hasten/launch/worker.h"

namespace hasten::cli {

inline constexpr const char* kProbeFlag = "--probe";
inline constexpr const char* kLastLine = "no such row: 4711";
inline constexpr int kFailureCode = 7;

// Runs a probe and returns its exit code. `prints` prints its line. `killed-once`: rank 1 kills
// itself in the first attempt. `fails`: rank 1 prints kLastLine and ends with kFailureCode. `waits`
// runs until it is killed, and has a child in a separate session.
int run_probe(const std::string& name);

// Prints a line that says which probe this is, with the time.
void print_probe_line(const Worker& worker, pid_t child = 0);

}  // namespace hasten::cli
