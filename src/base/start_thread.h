// File: base/start_thread.h (internal)
// Starts a thread in which all signals are blocked.
//
//   std::thread thread = start_thread([this] { run(); });
//   if (!thread.joinable()) try_again_later();
//   thread_ = start_required_thread("io.thread", "reads the messages", [this] { run(); });
//
// The result of start_thread() is not joinable if the system lacks threads, which may be temporary:
// the caller tries again, continues without it or throws. start_required_thread() throws an IoError
// with the code that the caller passes. Thread rule: any thread.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/signal_blocker.h"
#include "hasten/base/error.h"

namespace hasten {

// `Thread` is std::thread or std::jthread.
template <typename Thread = std::thread, typename Work>
Thread start_thread(Work work) {
  const SignalBlocker blocker;
  try {
    return Thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

// Throws the error for a thread that cannot be started. `task` is what the thread does, such as
// "writes the output".
[[noreturn]] inline void throw_no_thread(const char* code, const std::string& task) {
  throw IoError(code, {.what = "starting the thread that " + task,
                       .got = std::strerror(EAGAIN),
                       .hint = "raise ulimit -u or the control group's pids.max"});
}

template <typename Work>
std::thread start_required_thread(const char* code, const std::string& task, Work work) {
  std::thread thread = start_thread(std::move(work));
  if (!thread.joinable()) throw_no_thread(code, task);
  return thread;
}

}  // namespace hasten
