// File: anatomy/run_in_fork.h (internal)
// Runs a function in a fork of this process and returns its text, for predictions that a process
// can make only once, such as a dry run on a TPU.
//
//   const std::string bytes = run_in_fork([] { return str(peak_of_dry_run()); });
//
// The fork has as many threads as this process. If the function throws, RankError is thrown with
// its message. Throws IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <string>

namespace hasten::anatomy {

std::string run_in_fork(const std::function<std::string()>& function);

}  // namespace hasten::anatomy
