// File: process/fork/group_signals.h (internal)
// Receives the signals that are sent to this process's whole group to end it: Ctrl-C at a terminal,
// or a notebook's "interrupt". Ranks in their own groups do not receive them, and this process
// keeps its program's handlers. So a helper process in the group waits for the signals. The helper
// ends with this process.
//
//   GroupSignals signals;
//   poll(signals.descriptor());
//   if (const auto number = signals.take()) kill(-rank, *number);
//
// Throws IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <signal.h>

#include <array>
#include <optional>

#include "base/child_process.h"

namespace hasten {

// The signals that ask a job to end.
inline constexpr std::array kTerminationSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Removes the handlers of kTerminationSignals in a forked process, because the parent's handlers
// would act on behalf of the parent. Signals that are ignored, as with nohup, stay ignored.
void drop_inherited_handlers();

// Throws the error for a fork that has failed with this errno.
[[noreturn]] void throw_cannot_fork(int error);

class GroupSignals {
 public:
  GroupSignals() { start(); }

  // Returns a descriptor that becomes readable when a signal has arrived. It is -1 on Linux before
  // 5.3, where take() must be called from time to time.
  int descriptor() const { return descriptor_.get(); }
  // Returns the signal that has arrived since the last call, if any. Does not wait.
  std::optional<int> take();

 private:
  void start();

  std::optional<ChildProcess> helper_;
  Descriptor descriptor_;
};

}  // namespace hasten
