// File: process/fork/group_signals.h (internal)
// Receives the signals that are sent to end the whole process group of this process: Ctrl-C at a
// terminal, or a notebook's "interrupt". Ranks in their own groups do not get them, and this
// process keeps its program's handlers, so a helper process in the group does nothing but wait for
// them. It ends with this process.
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
inline constexpr std::array kEndSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Removes the handlers of kEndSignals in a forked process, because those of the parent would act on
// behalf of the parent. Signals that are ignored, as with nohup, stay ignored.
void drop_inherited_handlers();

// Throws the error of a fork that has failed with this errno.
[[noreturn]] void throw_cannot_fork(int error);

class GroupSignals {
 public:
  GroupSignals() { start(); }

  // Readable when a signal has arrived. It is -1 on Linux before 5.3, where take() must be called
  // from time to time.
  int descriptor() const { return descriptor_.get(); }
  // Returns the signal that has arrived since the last call, if any. Does not wait.
  std::optional<int> take();

 private:
  void start();

  std::optional<ChildProcess> helper_;
  Descriptor descriptor_;
};

}  // namespace hasten
