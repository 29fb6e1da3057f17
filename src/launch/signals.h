// File: launch/signals.h (internal)
// The signals that the launcher takes as they come, from a file instead of a handler.
//
//   Signals signals;
//   poll(signals.file()); while (const auto number = signals.next()) ...
//
// What was ignored when the launcher was started (nohup, `trap '' INT`, a script's `&`) stays
// ignored, in the launcher and in its ranks, but for SIGCHLD, as a process that ignores it never
// learns how its children end. The launcher ignores SIGPIPE and SIGXFSZ (a file that may not grow,
// ulimit -f), as its writes report both; ranks have them as they were. Throws nothing. Thread rule:
// made on the only thread, before there are others.
#pragma once

#include <signal.h>

#include <optional>

namespace hasten {

class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int file() const { return file_; }
  std::optional<int> next();
  // Between fork and exec of a rank: nothing is blocked there, and SIGPIPE and SIGXFSZ are as they
  // were.
  void restore_in_rank() const;

 private:
  int file_ = -1;
  sigset_t mask_before_{};
  struct sigaction child_before_ {
  }, pipe_before_{}, size_before_{};
};

// Whether it asks the job to end.
inline bool is_end(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

}  // namespace hasten
