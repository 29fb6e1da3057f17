// File: launch/several_machines.h (internal)
// A launch of which this machine is one of several: its launcher's side of the protocol of
// rendezvous/coordinator.h, which one of the machines serves.
//
// While the connection to the coordinator is lost the ranks go on. On the next connection the
// launcher says which round its ranks belong to and what has become of them; a coordinator that
// does not count them any more tells it to stop them, and it joins the next round.
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

  // Serves the others if this is the machine they meet at. Throws ConfigError with the
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
  const std::string program_;  // its digest
  const std::string agent_;    // by which the coordinator knows this launcher
  const std::string run_id_;   // the job's name, if this is the machine they meet at
  bool serves_ = false;
  std::unique_ptr<rendezvous::JobServer> server_;
  std::optional<rendezvous::ReservedPort> port_;
  std::unique_ptr<Contact> contact_;

  int attempt_ = -1;                      // the last round
  bool asks_for_round_ = false;           // and has not been told it
  std::optional<nlohmann::json> report_;  // what has become of this round's ranks
  bool has_ended_ = false;                // this round, well: there is nothing to join for
  std::string told_reason_;               // why the ranks of this round have stopped
  std::optional<std::string> end_;        // why the coordinator was lost while ranks ran
  int left_by_ = 0;                       // a signal to this launcher
  rendezvous::Clock::time_point left_at_{};

  std::string told_;
  rendezvous::Clock::time_point told_at_{}, asked_at_{};
  rendezvous::Clock::duration tell_after_{};
};

}  // namespace hasten
