// File: launch/several_machines.h (internal)
// A launch on several machines, of which this is one: the launcher's side of the protocol in
// rendezvous/coordinator.h. One of the machines serves the coordinator.
//
// While the connection to the coordinator is lost, the ranks continue. On the next connection the
// launcher reports their round and how they have ended, if they have. A coordinator that no longer
// counts them orders them to stop, and the launcher joins the next round.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/contact.h"
#include "launch/membership.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"

namespace hasten {

class SeveralMachines : public Membership {
 public:
  SeveralMachines(const LaunchConfiguration& run, Console& console, Signals& signals);
  ~SeveralMachines() override;

  // Also starts the server if this is the machine at which all meet. Throws ConfigError with the
  // coordinator's reason if it refuses this machine, IoError "rendezvous.port-taken",
  // "rendezvous.host", "rendezvous.connect".
  Next next() override;
  int file() const override { return contact_->file(); }
  short events() const override { return contact_->events(); }
  int longest_wait() const override { return contact_->longest_wait(); }
  std::optional<Order> order() override;
  void failed(int code, const std::string& reason) override;
  void ended() override;
  void leaving(int signal) override;

 private:
  void begin();
  std::optional<bool> is_host();
  void ask_for_round();
  nlohmann::json join_message() const;
  nlohmann::json leaving_message() const;
  std::vector<nlohmann::json> introduction() const;
  std::optional<Next> hear(const nlohmann::json& message);
  [[noreturn]] void refuse(const nlohmann::json& message) const;
  Round begin_round(const nlohmann::json& message);
  Round round_of(const nlohmann::json& message) const;
  End end_of(const nlohmann::json& message) const;
  End lost(const std::string& why) const;
  void wait(int file, short events, int milliseconds);
  void wait_until_all_have_gone();
  void tell_stop(const nlohmann::json& message);
  void tell_news();
  void tell_waiting(const std::string& stem, const std::function<std::string()>& text);
  void tell(const std::string& text) const;

  const LaunchConfiguration& run_;
  Console& console_;
  Signals& signals_;
  const rendezvous::Settings settings_;
  const Endpoint at_;
  const std::string program_;  // the digest of the program
  const std::string agent_;    // the identity by which the coordinator knows this launcher
  const std::string run_id_;   // the job's name, if this is the machine at which all meet
  bool serves_ = false;
  std::unique_ptr<rendezvous::JobServer> server_;
  std::optional<rendezvous::ReservedPort> port_;
  std::unique_ptr<Contact> contact_;

  int attempt_ = -1;                      // of the last round
  bool asks_for_round_ = false;           // has asked to join, without an answer yet
  std::optional<nlohmann::json> report_;  // how this round's ranks have ended
  bool has_ended_ = false;                // this round's ranks have ended well
  std::string told_reason_;               // why this round's ranks were stopped, as reported
  std::optional<std::string> end_;        // why the coordinator was lost while ranks ran
  int left_by_ = 0;                       // the signal that asked this launcher to end
  rendezvous::Clock::time_point left_at_{};

  // The state of tell_waiting().
  std::string told_;
  rendezvous::Clock::time_point told_at_{}, asked_at_{};
  rendezvous::Clock::duration tell_after_{};
};

}  // namespace hasten
