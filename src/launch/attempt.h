// File: launch/attempt.h (internal)
// All ranks of this machine in one round, from their start to their end.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/membership.h"
#include "launch/rank_output.h"
#include "launch/rank_process.h"

namespace hasten {

class Attempt {
 public:
  // Starts them. Throws IoError "launch.start".
  Attempt(const LaunchConfiguration& run, const Round& round, const std::string& job,
          Membership& membership, Signals& signals);

  // Until all have ended. The membership hears of the first failure when it happens, of a good end,
  // and of a signal to end.
  void run();

 private:
  void wait();
  int longest_wait() const;  // milliseconds; -1: any
  bool read_from(std::size_t local_rank, int file, int stream);
  void drain();
  void look_for_ends();
  void pass_on(int signal);
  bool was_passed_on(int signal) const;
  void end_by(int signal);
  void stop(int signal, double grace);
  void limit(double grace);
  void send(int signal);
  void kill_all();
  std::string failure_text();

  const LaunchOptions& options_;
  const Round& round_;
  const std::string& job_;
  Membership& membership_;
  Signals& signals_;
  std::vector<RankOutput> outputs_;
  std::vector<RankProcess> ranks_;
  std::optional<std::size_t> first_failed_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool ordered_ = false;        // to stop, from outside
  std::vector<int> passed_on_;  // signals that do not end the job by themselves
  int stopped_by_ = 0;          // a signal to the launcher
};

}  // namespace hasten
