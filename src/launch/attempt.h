// File: launch/attempt.h (internal)
// Runs the ranks of this machine for one round, from their start to their end.
//
//   Attempt attempt(configuration, round, {processes, cleanup_process, controller, signals,
//                                         console, orphans});
//   attempt.run();                                 // returns when all ranks have ended
//
// An attempt kills the remaining processes of the job on this machine, however it ends. Thread
// rule: the launcher's own thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/exit_order.h"
#include "launch/job.h"
#include "launch/job_controller.h"
#include "launch/orphan_collector.h"
#include "launch/rank_output.h"
#include "launch/rank_process.h"

namespace hasten {

// The parts of the launcher that every attempt uses.
struct AttemptContext {
  const JobProcesses& processes;
  CleanupProcess& cleanup_process;
  JobController& controller;
  Signals& signals;
  Console& console;
  const OrphanCollector& orphans;
};

class Attempt {
 public:
  // Starts the ranks. Throws IoError "launch.start", or "io.write" for a log file.
  Attempt(const LaunchConfiguration& run, const Round& round, const AttemptContext& context);

  // Returns when all ranks have ended. Reports the first failure, a signal that ends the job, or
  // success to the controller as soon as it happens.
  void run();

 private:
  void wait();
  int longest_wait() const;  // in milliseconds; -1 means no limit
  std::size_t read_from(std::size_t local_rank, int file, int stream);
  void drain_pipes(std::size_t local_rank);
  void handle_signals();
  void replace_cleanup_process_if_ended();
  void handle_ended_ranks();
  std::vector<std::size_t> ranks_in_exit_order();
  void handle_failure(std::size_t local_rank);
  void handle_stop_request(const StopRequest& request);
  void report_stop(std::size_t local_rank);
  void suspend();
  void forward_signal(int signal);
  bool was_forwarded(int signal) const;
  bool comes_here_too(int signal) const;
  void end_job_with(int signal);
  void send_termination_signal_once(int signal);
  void send_termination_signal(int signal);
  void set_kill_deadline(double grace);
  void send(int signal);
  void kill_all();
  std::string rank_text(std::size_t local_rank) const;
  std::string failure_text(std::size_t local_rank);

  const LaunchOptions& options_;
  const Round& round_;
  const AttemptContext context_;
  const Signals::SuspensionScope suspension_;  // declared before the ranks, which it covers
  JobCleanup cleanup_;  // declared before the ranks, so that it runs after their destruction
  ExitOrder exit_order_;
  std::vector<RankOutput> outputs_;
  std::vector<RankProcess> ranks_;
  std::vector<bool> stop_is_reported_;
  std::optional<std::size_t> first_failed_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool stop_is_requested_ = false;           // the controller has requested a stop
  int stop_signal_ = 0;                      // the forwarded signal that has caused it, or 0
  bool termination_signal_is_sent_ = false;  // the ranks have received a signal to end
  std::vector<int> forwarded_signals_;       // signals that do not end the job by themselves
  int termination_signal_ = 0;               // the signal to the launcher that ends the job
};

}  // namespace hasten
