// File: launch/signals.h (internal)
// Receives the launcher's signals from a file (a signalfd) instead of a handler.
//
//   Signals signals;
//   poll(signals.descriptor()); while (const auto number = signals.next()) ...
//
// A signal that was ignored when the launcher was started (nohup, `trap '' INT`, a script's `&`)
// stays ignored, in the launcher and in its ranks. SIGCHLD is an exception, because a process that
// ignores it never learns how its children end. The launcher ignores SIGPIPE and SIGXFSZ (sent if a
// file may not grow, ulimit -f), because its writes report both problems. Ranks keep the original
// handling of both signals. Throws nothing. Thread rule: constructed by the only thread, before
// there are others.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace hasten {

class Signals {
 public:
  // While it exists, next() returns SIGTSTP (Ctrl-Z) instead of letting it stop this process alone,
  // unless the signal was ignored when the launcher was started.
  class [[nodiscard]] SuspensionScope {
   public:
    explicit SuspensionScope(Signals& signals);
    SuspensionScope(const SuspensionScope&) = delete;
    SuspensionScope& operator=(const SuspensionScope&) = delete;
    ~SuspensionScope();

   private:
    Signals& signals_;
    bool takes_ = false;
  };

  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int descriptor() const { return file_; }
  // Returns the next signal that has come, if there is one.
  std::optional<int> next();
  // Waits until this signal comes, which next() then does not return, or the time is over. Returns
  // whether it has come.
  bool wait_for(int number, std::chrono::milliseconds limit) const;
  // Stops this process as SIGTSTP does by default, inside a SuspensionScope, and returns when it
  // continues. Returns at once if the system ignores SIGTSTP, because no shell could continue this
  // process (its process group is orphaned).
  void suspend() const;
  // For use between fork and exec of a rank: unblocks all signals, restores SIGPIPE and SIGXFSZ.
  void restore_in_rank() const;

 private:
  int file_ = -1;
  sigset_t taken_{};
  sigset_t mask_before_{};
  struct sigaction child_before_ {
  }, pipe_before_{}, size_before_{};
};

// True if the signal asks the job to end.
inline bool is_termination_signal(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

}  // namespace hasten
