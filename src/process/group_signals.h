// File: process/group_signals.h (internal)
// The signals that end a process and that come to the whole process group of this one: Ctrl-C at a
// terminal, or a notebook's "interrupt". Ranks in groups of their own do not get them, and this
// process has handlers of its program's, so a process that does nothing waits for them in the
// group. It ends with this one.
//
//   GroupSignals signals;
//   poll(signals.file());
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

  // Readable when a signal has come; -1 where the system has no such file, and take() is to be
  // called now and then.
  int file() const { return file_; }
  // The signal that has come since the last call. Does not wait.
  std::optional<int> take();

 private:
  void start();
  void stop();

  pid_t process_ = -1;
  int file_ = -1;
};

}  // namespace hasten
