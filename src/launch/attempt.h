// File: launch/attempt.h (internal)
// Runs the ranks of this machine for one round, from their start to their end.
//
//   Attempt attempt(configuration, round, {processes, guardian, membership, signals, console,
//                                         orphans});
//   attempt.run();                                 // returns when all ranks have ended
//
// However an attempt ends, it kills what is left of the job here. Thread rule: the launcher's own
// thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/end_order.h"
#include "launch/job.h"
#include "launch/membership.h"
#include "launch/orphan_collector.h"
#include "launch/rank_output.h"
#include "launch/rank_process.h"

namespace hasten {

// The parts of the launcher that every attempt uses.
struct AttemptContext {
  const JobProcesses& processes;
  Guardian& guardian;
  Membership& membership;
  Signals& signals;
  Console& console;
  const OrphanCollector& orphans;
};

class Attempt {
 public:
  // Starts the ranks. Throws IoError "launch.start", or "io.write" for a log file.
  Attempt(const LaunchConfiguration& run, const Round& round, const AttemptContext& context);

  // Returns when all ranks have ended. Reports the first failure, a signal that ends the job, or a
  // good end to the membership as soon as it happens.
  void run();

 private:
  void wait();
  int longest_wait() const;  // milliseconds; -1: no limit
  std::size_t read_from(std::size_t local_rank, int file, int stream);
  void read_what_is_there(std::size_t local_rank);
  void take_signals();
  void look_after_guardian();
  void look_for_ends();
  std::vector<std::size_t> in_order_of_end();
  void take_failure(std::size_t local_rank);
  void report_stop(std::size_t local_rank);
  void pass_on(int signal);
  bool was_passed_on(int signal) const;
  void end_by(int signal);
  void ask_to_end(int signal);
  void send_end(int signal);
  void limit(double grace);
  void send(int signal);
  void kill_all();
  std::string name_of(std::size_t local_rank) const;
  std::string failure_text(std::size_t local_rank);

  const LaunchOptions& options_;
  const Round& round_;
  const AttemptContext context_;
  JobCleanup cleanup_;  // declared before the ranks, so that it runs after their destruction
  EndOrder end_order_;
  std::vector<RankOutput> outputs_;
  std::vector<RankProcess> ranks_;
  std::vector<bool> stop_is_told_;
  std::optional<std::size_t> first_failed_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool ordered_ = false;        // the membership has ordered a stop
  bool asked_to_end_ = false;   // the ranks have received a signal to end
  std::vector<int> passed_on_;  // signals that do not end the job by themselves
  int stopped_by_ = 0;          // the signal to the launcher that ends the job
};

}  // namespace hasten
