// File: launch/thread_waiting.h (internal)
// Limits how long LibTorch's threads spin while they wait for each other, before they sleep.
//
// libgomp, the OpenMP library in LibTorch's wheel, spins 300,000 times by default, which takes
// several milliseconds. On a machine with other work to do, the spinning thread occupies the core
// that the awaited thread needs, so a step takes several times longer. Threads that sleep at once
// (OMP_WAIT_POLICY=passive) lose time at each of the many short parallel regions of a step. The
// limit chosen here covers the usual gap between two regions (docs/design/015-waiting-threads.md).
//
// libgomp reads the limit once, when it is loaded. So the limit must be in the environment of a
// process before that process starts: of hasten-torch, and of the ranks that hasten launch starts.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/internal_api.h"

namespace hasten {

// Returns the variable and its value, or nullopt if the user has already set OMP_WAIT_POLICY or
// GOMP_SPINCOUNT.
HASTEN_INTERNAL_API std::optional<std::pair<std::string, std::string>> thread_waiting_variable();

}  // namespace hasten
