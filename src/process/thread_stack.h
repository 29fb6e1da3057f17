// File: process/thread_stack.h (internal)
// Where another thread of this process is: its functions, innermost first.
//
//   for (const std::string& line : stack_of(thread, 200ms)) ...   // "evaluate() in train+0x1234"
//
// The thread is interrupted by a signal that nobody else handles and notes its return addresses;
// names are looked up here. One that does not answer in time (it blocks signals, or the process is
// stopped) has no lines; where names cannot be looked up in time (the thread holds the loader's
// lock, or a file system does not answer) the lines say less. All of it takes four times `longest`
// at most. The handler stays installed, as a signal may still be on its way.
// Thread rule: any thread but the one that is asked about.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace hasten {

std::vector<std::string> stack_of(pid_t thread, std::chrono::milliseconds longest);

// The thread stays where it is, for ever: for a process that ends and has to wait a moment before.
// Nothing may be asked for afterwards that the thread may hold, memory included.
void hold(pid_t thread);

// Loads what taking a stack needs, which a signal handler may not do.
void prepare_stacks();

}  // namespace hasten
