// File: launch/rank_process.h (internal)
// One rank: a process that leads a group, writes into pipes, and dies when the launcher does.
//
//   RankProcess rank(command, signals);
//   poll(rank.output(), rank.errors());
//   on SIGCHLD: if (rank.has_just_ended()) rank.end_description()
//
// A rank must not read the terminal, because it is not in the foreground. Its standard input is
// /dev/null if the launcher's is a terminal. Thread rule: the thread that constructed it, since the
// rank dies with that thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "hasten/launch/launcher.h"
#include "launch/signals.h"

namespace hasten {

class RankProcess {
 public:
  // Throws IoError "launch.start".
  RankProcess(const RankCommand& command, const Signals& signals);

  pid_t process() const { return process_->number(); }
  // The non-blocking end of the pipe for its standard output; -1 once it is closed.
  int output() const { return output_.get(); }
  // The same for its standard error.
  int errors() const { return errors_.get(); }
  void close_file(int file);

  // Sends the signal to the whole process group, unless the rank has ended.
  void send(int signal) const { process_->send_to_group(signal); }
  // Asks the system whether the rank has ended. Returns true the first time, and then also kills
  // the rest of its group.
  bool has_just_ended();
  bool has_ended() const { return status_.has_value(); }
  // Returns the signal that has stopped the rank, once for each stop.
  std::optional<int> has_just_stopped() const;
  // The exit code, 0 to 255, or 128 + the signal that killed the rank; 1 if the system does not
  // know.
  int code() const;
  // Returns a text such as "ended with code 3" or "was killed by signal 9 (SIGKILL)".
  std::string end_description() const;
  double seconds() const;  // from its start to its end, or until now

 private:
  Descriptor output_, errors_;
  std::optional<ChildProcess> process_;  // set at the end of the constructor
  std::optional<int> status_;
  std::chrono::steady_clock::time_point started_at_, ended_at_;
};

}  // namespace hasten
