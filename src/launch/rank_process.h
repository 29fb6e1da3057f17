// File: launch/rank_process.h (internal)
// One rank: a process in a group of its own, with its output in pipes, that dies when the launcher
// does.
//
//   RankProcess rank(command, signals);
//   poll(rank.output(), rank.errors()); on SIGCHLD: if (rank.has_just_ended()) rank.how_it_ended()
//
// It never reads the terminal, whose foreground it is not in: its standard input is /dev/null where
// the launcher's is a terminal. Thread rule: the thread that made it, as the rank is bound to that
// thread's life.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hasten/launch/launcher.h"
#include "launch/signals.h"

namespace hasten {

class RankProcess {
 public:
  // Throws IoError "launch.start".
  RankProcess(const RankCommand& command, const Signals& signals);
  RankProcess(RankProcess&&) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  pid_t process() const { return process_; }
  // Non-blocking reading ends; -1 once closed.
  int output() const { return files_[0]; }
  int errors() const { return files_[1]; }
  void close_file(int file);

  // To the whole group.
  void send(int signal) const;
  // Asks the system whether it has ended; true the first time it has. The rest of its group is
  // killed then.
  bool has_just_ended();
  bool ended() const { return status_.has_value(); }
  // The signal that has stopped it, once a stop.
  std::optional<int> has_just_stopped() const;
  // 0 to 255, or 128 + the signal; 1 where the system does not know.
  int code() const;
  // "ended with code 3", "was killed by signal 9 (SIGKILL)".
  std::string how_it_ended() const;
  double seconds() const;  // from its start to its end, or now

 private:
  pid_t process_ = -1;
  int files_[2] = {-1, -1};
  std::optional<int> status_;
  std::chrono::steady_clock::time_point began_, over_;
};

}  // namespace hasten
