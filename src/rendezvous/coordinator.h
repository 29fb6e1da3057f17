// File: rendezvous/coordinator.h (internal)
// Decides which machines make up a job, in rounds: who is there, who has which rank, and when all
// stop, start again or end. One of the machines has it; the launchers of all (agents) talk to it.
//
//   agent -> join {...}             coordinator -> waiting {...} | refused {...} | round {...}
//   agent -> failed {...} | ended | leaving {signal} | alive
//                                   coordinator -> stop {reason} | alive
//   agent -> join {...} again       coordinator -> round {...} | finish {code, reason}
//   agent -> reconnecting           the last message of a connection that it gives up as silent
//   agent -> gone                  the last message of a launcher that ends, as the end of a
//                                  connection may look like a failure of the network
//   agent -> rejoin {agent, attempt}   on a new connection, after the old one was lost
//                                   coordinator -> nothing, or the stop or finish that it missed
//
// Rounds: with min_machines there, an elastic job waits `last_call` more for others the first time;
// with max_machines it starts at once. Machines that come later are taken in by a new round if
// there is room and they have lived for `last_call` (newcomers.h), and wait for a place otherwise.
// The failure of a rank, or the loss of a machine whose ranks run, takes one of max_restarts. A
// machine that leaves by a signal does as little harm as possible: an elastic job goes on without
// it at no restart's cost, a fixed job takes one of max_restarts, and both gather again. Only the
// machine of the coordinator ends the job by leaving. A machine whose ranks have all ended well has
// done its part: its loss changes nothing unless all start again.
//
// A connection is not a machine: an agent has a random identity, by which it is known on its
// next connection. As long as it is not silent for keep_alive_timeout it keeps its place.
//
// Time counts only while this process runs (base/running_clock.h), and after a pause every machine
// has keep_alive_timeout again, since nothing that it said meanwhile has been read.
//
// It has no network, no thread and no clock: it is a state that messages and times go into. Throws
// DataError "rendezvous.message" for a message whose fields are of the wrong types; the state is
// then as before. Thread rule: one thread, which calls tick() about once a second.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/running_clock.h"
#include "rendezvous/agent_message.h"
#include "rendezvous/connection.h"
#include "rendezvous/newcomers.h"
#include "rendezvous/settings.h"

namespace hasten::rendezvous {

class Coordinator {
 public:
  using Send = std::function<void(int connection, const nlohmann::json& message)>;
  using NewRound = std::function<void()>;  // called before the machines of a round are told
  Coordinator(const Settings& settings, Send send, NewRound new_round = {});

  // `address`: the agent's; `reached_at`: this machine's, as that agent sees it. Times are the
  // steady clock's.
  void receive(int connection, const nlohmann::json& message, const std::string& address,
               const std::string& reached_at, Clock::time_point at);
  // The launcher at the other end of the connection has ended.
  void lost(int connection, const std::string& why, Clock::time_point at);
  // The connection failed; the launcher may live and come back by another one.
  void broken(int connection);
  // Does what is due by time alone.
  void tick(Clock::time_point at);
  bool finished() const { return finish_.has_value(); }
  // Everyone who has been told the end has gone.
  bool all_gone() const { return finished() && agents_.empty(); }

 private:
  enum class State { waiting, running, ended, stopping };
  using Number = std::int64_t;  // of an agent, in the order in which they came
  struct Agent {
    JoinRequest request;  // the last one
    std::string address, reached_at;
    State state = State::waiting;
    std::optional<int> connection;
    std::int64_t machine_rank = -1, first_rank = 0;  // in the last round it was in
    Clock::time_point came, heard;
  };
  struct Finish {
    int code = 0;
    std::string reason;
    bool after_failure = false;  // ranks that wait for a dead one need no long grace
  };

  Clock::time_point running_time(Clock::time_point at);
  void join(int connection, JoinRequest request, const std::string& address,
            const std::string& reached_at, Clock::time_point now);
  void rejoin(int connection, const nlohmann::json& message, Clock::time_point now);
  void failed(Agent& agent, const nlohmann::json& message, Clock::time_point now);
  void leave(Number number, const nlohmann::json& message, Clock::time_point now);
  std::optional<nlohmann::json> refusal(const JoinRequest& request, std::optional<Number> own,
                                        Clock::time_point now);
  void enter(Number number, Clock::time_point now);
  void give_up(Number number, const std::string& why, Clock::time_point now);
  void give_up_silent(Clock::time_point now, bool after_pause);
  void take_in_newcomers(Clock::time_point now);
  void try_to_start(Clock::time_point now);
  void start_round();
  void tell_round(Agent& agent);
  void restart_or_finish(Finish finish, bool counts, Clock::time_point now);
  void stop_all(const std::string& reason, bool after_failure);
  void end(Finish finish);
  void tell_end(const Agent& agent);
  void tell_waiting(Clock::time_point now);

  void send(const Agent& agent, const nlohmann::json& message) const;
  void bind(Number number, int connection);
  Agent take_out(Number number);
  std::optional<Number> number_at(int connection) const;
  std::optional<Number> number_of(const std::string& identity) const;
  std::vector<Number> in_order() const;  // of those that wait, as ranks are given
  std::array<std::size_t, 4> counts() const;
  std::size_t count(State state) const { return counts()[static_cast<std::size_t>(state)]; }
  // It waits, and could be told a round.
  static bool is_here(const Agent& agent) {
    return agent.state == State::waiting && agent.connection;
  }
  bool is_gathering() const;
  std::string count_text() const;
  std::string names_text() const;
  std::string run_id() const;
  std::string own_address() const;
  std::string address_of(const Agent& agent) const;

  Settings settings_;
  Send send_;
  NewRound new_round_;
  std::map<Number, Agent> agents_;
  std::map<int, Number> by_connection_;
  std::map<std::string, Number> by_identity_;
  Number arrivals_ = 0;
  std::int64_t attempt_ = -1, restarts_ = 0;
  bool some_have_ended_ = false;  // well, in this round
  nlohmann::json round_, stop_;   // as told last
  Newcomers newcomers_;
  std::optional<RunningClock> clock_;
  bool has_paused_ = false;  // since the last tick
  std::optional<Clock::time_point> gathering_since_, enough_since_;
  std::optional<Finish> finish_;
};

}  // namespace hasten::rendezvous
