// File: process/watch/bounded_call.h (internal)
// Runs a function and waits for it no longer than a limit, because it may block for ever: on a
// write to a pipe that nobody reads, or on a lock that a hanging thread holds.
//
//   const bool written = completes_within(500ms, [text] { write_all(text); });
//
// Returns whether the function has completed within the limit. The function runs in its own thread
// and may continue after the call has returned, so it must own what it uses, and it must not throw.
// If no thread can be started, it runs in the calling thread without a limit. Thread rule: any
// thread.
#pragma once

#include <chrono>
#include <functional>

namespace hasten {

bool completes_within(std::chrono::milliseconds limit, std::function<void()> function);

}  // namespace hasten
