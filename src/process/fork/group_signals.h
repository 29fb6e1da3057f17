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

#include <sys/types.h>

#include <optional>

namespace hasten {

class GroupSignals {
 public:
  GroupSignals() { start(); }
  GroupSignals(const GroupSignals&) = delete;
  GroupSignals& operator=(const GroupSignals&) = delete;
  ~GroupSignals() { stop(); }

  // Readable when a signal has arrived. It is -1 on Linux before 5.3, where take() must be called
  // from time to time.
  int descriptor() const { return descriptor_; }
  // Returns the signal that has arrived since the last call, if any. Does not wait.
  std::optional<int> take();

 private:
  void start();
  void stop();

  pid_t process_ = -1;
  int descriptor_ = -1;
};

}  // namespace hasten
