// File: process/bounded_call.h (internal)
// Waits for a function no longer than a limit, for what may block for ever: a write to a pipe that
// nobody reads, a lock that a thread which hangs holds.
//
//   const bool written = completes_within(500ms, [text] { write_all(text); });
//
// The function runs in a thread of its own and may go on after the call, so it owns what it uses.
// It throws nothing. Where the system gives no thread it runs in the calling one, without a limit.
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <functional>

namespace hasten {

bool completes_within(std::chrono::milliseconds longest, std::function<void()> function);

}  // namespace hasten
