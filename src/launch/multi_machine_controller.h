// File: launch/multi_machine_controller.h (internal)
// The launcher's side of a launch on several machines, with the protocol in
// rendezvous/coordinator.h. One of the machines serves the coordinator.
//
// While the connection to the coordinator is lost, the ranks continue. On the next connection the
// launcher reports their round and how they have ended, if they have. If the coordinator no longer
// counts these ranks, it orders them to stop, and the launcher joins the next round.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/coordinator_connection.h"
#include "launch/job_controller.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"

namespace hasten {

class MultiMachineController : public JobController {
 public:
  MultiMachineController(const LaunchConfiguration& run, Console& console, Signals& signals);
  ~MultiMachineController() override;

  // Also starts the server if this is the machine at which all meet. Throws ConfigError with the
  // coordinator's reason if it refuses this machine, IoError "rendezvous.port-taken",
  // "rendezvous.host", "rendezvous.connect".
  RoundOrResult next() override;
  int descriptor() const override { return coordinator_->descriptor(); }
  short events() const override { return coordinator_->events(); }
  int longest_wait() const override { return coordinator_->longest_wait(); }
  std::optional<StopRequest> poll_stop_request() override;
  void report_failure(int code, const std::string& reason) override;
  void report_success() override;
  void report_leaving(int signal) override;

 private:
  void connect();
  std::optional<bool> is_host();
  void request_round();
  nlohmann::json join_message() const;
  nlohmann::json leaving_message() const;
  std::vector<nlohmann::json> opening_messages() const;
  std::optional<RoundOrResult> handle_message(const nlohmann::json& message);
  [[noreturn]] void throw_refused(const nlohmann::json& message) const;
  Round begin_round(const nlohmann::json& message);
  Round round_of(const nlohmann::json& message) const;
  JobResult make_job_result(const nlohmann::json& message) const;
  JobResult make_loss_result(const std::string& why) const;
  void wait(int file, short events, int milliseconds);
  void wait_until_all_disconnected();
  void report_stop(const nlohmann::json& message);
  void report_notice();
  void report_waiting(const std::string& stem, const std::function<std::string()>& text);
  void report(const std::string& text) const;

  const LaunchConfiguration& run_;
  Console& console_;
  Signals& signals_;
  const rendezvous::CoordinatorSettings settings_;
  const Endpoint coordinator_endpoint_;
  const std::string program_digest_;  // the digest of the program
  const std::string agent_id_;        // the identity by which the coordinator knows this launcher
  const std::string run_id_;          // the job's name, if this is the machine at which all meet
  bool hosts_coordinator_ = false;
  std::unique_ptr<rendezvous::JobServer> server_;
  std::optional<rendezvous::ReservedPort> port_;
  std::unique_ptr<CoordinatorConnection> coordinator_;

  int attempt_ = -1;                             // the coordinator's number of the last round
  bool round_is_requested_ = false;              // has asked to join and has no answer yet
  std::optional<nlohmann::json> round_report_;   // how this round's ranks have ended
  bool round_succeeded_ = false;                 // this round's ranks have ended well
  std::string reported_reason_;                  // why this round's ranks were stopped, as reported
  std::optional<std::string> coordinator_loss_;  // why the coordinator was lost while ranks ran
  int leave_signal_ = 0;                         // the signal that asked this launcher to end
  int stop_signal_ = 0;                          // the signal that has stopped another machine
  rendezvous::Clock::time_point leave_time_{};

  // The state of report_waiting().
  std::string reported_wait_;
  rendezvous::Clock::time_point reported_at_{}, wait_start_{};
  rendezvous::Clock::duration report_interval_{};
};

}  // namespace hasten
