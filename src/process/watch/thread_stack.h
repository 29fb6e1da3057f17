// File: process/watch/thread_stack.h (internal)
// Returns the stack of another thread of this process: its functions, innermost first.
//
//   for (const std::string& line : stack_of(thread, 200ms)) ...   // "evaluate() in train+0x1234"
//
// A signal that has no other handler interrupts the thread, which records its return addresses;
// names are looked up outside of it. If the thread does not answer in time (it blocks signals, or
// the process is stopped), the result is empty. If names cannot be looked up in time (the thread
// holds the loader's lock, or a file system does not answer), the lines have less detail. All of
// this takes at most four times `timeout`. The handler stays installed, because a signal may still
// be pending.
// Thread rule: any thread but the one that is examined.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace hasten {

std::vector<std::string> stack_of(pid_t thread, std::chrono::milliseconds timeout);

// Stops a thread forever, in a process that is about to end. The caller must not need any lock
// that the thread may hold, including that of the memory allocator.
void park_thread(pid_t thread);

// Loads the libraries that stack_of() needs, because a signal handler must not load them.
void preload_backtrace();

}  // namespace hasten
