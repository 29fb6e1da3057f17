// File: launch/several_machines.h (internal)
// A launch of which this machine is one of several: its launcher's side of the talk with the
// coordinator (rendezvous/coordinator.h), which one of them serves.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

#include "launch/membership.h"
#include "rendezvous/connection.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"

namespace hasten {

class SeveralMachines : public Membership {
 public:
  // Serves the others where this is the machine they meet at. Throws IoError
  // "rendezvous.port-taken".
  explicit SeveralMachines(const LaunchConfiguration& run);
  ~SeveralMachines() override;

  // Throws ConfigError with the coordinator's reason where it refuses this machine, IoError
  // "rendezvous.connect".
  Next next(Signals& signals) override;
  int file() const override;
  short events() const override;
  int longest_wait() const override { return 1000; }  // a silent machine sends nothing to read
  std::optional<Order> order() override;
  void failed(int code, const std::string& reason) override;
  void ended() override;
  void leaving(int signal) override;

 private:
  // Nothing where a signal came.
  bool connect(Signals& signals);
  void join();
  void send(const nlohmann::json& message);
  std::optional<nlohmann::json> read();  // the next message that is no sign of life
  void wait(Signals& signals, int milliseconds);
  bool silent() const;
  Round round_of(const nlohmann::json& message) const;
  End end_of(const nlohmann::json& message);
  End lost(const std::string& why);
  void tell_waiting(const std::string& text);
  void keep_alive();

  const LaunchConfiguration& run_;
  const rendezvous::Settings settings_;
  const Endpoint at_;
  const bool is_host_;
  rendezvous::SecureContext context_;
  std::string program_;  // its digest
  std::string run_id_;   // the job's name, if this is the machine they meet at
  std::unique_ptr<rendezvous::JobServer> server_;
  std::optional<rendezvous::ReservedPort> port_;

  // The connection, and a thread that says every second that this launcher lives, also when its
  // output is not read and it waits for that.
  mutable std::mutex turn_;
  std::unique_ptr<rendezvous::Connection> connection_;
  rendezvous::Clock::time_point heard_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread alive_;

  bool has_ended_ = false;          // this round, well: there is nothing to join for
  std::string own_failure_;         // told already
  std::string restart_;             // why the next round is made
  std::optional<std::string> end_;  // of the connection, seen while ranks ran
  int left_by_ = 0;
  std::string told_;
  rendezvous::Clock::time_point told_at_, asked_at_;
};

}  // namespace hasten
