// File: rendezvous/coordinator.h (internal)
// Decides in rounds which machines form a job, which rank each one has, and when all of them stop,
// restart or finish. It runs on one machine; the launchers (agents) of all machines talk to it.
//
//   agent -> join {...}                coordinator -> waiting {...} | refused {...} | round {...}
//   agent -> failed {...} | ended | leaving {signal} | alive
//                                      coordinator -> stop {reason, signal} | alive
//   agent -> join {...} again          coordinator -> round {...} | finish {code, reason}
//   agent -> reconnecting              the last message of a connection that it gives up as silent
//   agent -> exited                    the last message of a launcher that ends, since the end of a
//                                      connection may also be a network failure
//   agent -> rejoin {agent, attempt}   on a new connection, after the old one was lost
//                                      coordinator -> nothing, or the stop or finish that it missed
//
// Rounds: a job starts at once when max_machines are present. Once min_machines are present, an
// elastic job waits `last_call_timeout` longer for others in its first round. A machine that comes
// later is included in a new round if there is room and it has stayed for `last_call_timeout`
// (join_delays.h). Otherwise it waits for a place. The failure of a rank, or the loss of a machine
// whose ranks run, uses one of max_restarts. If a machine leaves because of a signal, the others
// gather again. This uses a restart in a fixed job, but not in an elastic one. The stop names the
// signal, so that a machine that has received it too leaves instead of starting again. If the
// coordinator's own machine leaves, the job ends. The loss of a machine whose ranks have all
// succeeded matters only if all ranks restart.
//
// An agent is identified by a random identity, not by its connection. It keeps its place unless it
// is silent for keep_alive_timeout.
//
// Time counts only while this process runs (base/running_clock.h). After a pause every machine has
// the full keep_alive_timeout again, because messages sent in the meantime have not been read.
//
// The class uses no network, thread or clock: it is a state machine for messages and times. Throws
// DataError "rendezvous.message" for fields of the wrong types; its state then stays unchanged.
// Thread rule: one thread, which calls tick() about once a second.
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
#include "rendezvous/coordinator_settings.h"
#include "rendezvous/join_delays.h"

namespace hasten::rendezvous {

class Coordinator {
 public:
  using Send = std::function<void(int connection, const nlohmann::json& message)>;
  using NewRound = std::function<void()>;  // Called before a round is announced.
  Coordinator(const CoordinatorSettings& settings, Send send, NewRound new_round = {});

  // `address` is the agent's address. `server_address` is this machine's address as the agent sees
  // it. Times are from the steady clock.
  void receive(int connection, const nlohmann::json& message, const std::string& address,
               const std::string& server_address, Clock::time_point at);
  // Call it when the launcher at the other end has ended.
  void on_disconnect(int connection, const std::string& why, Clock::time_point at);
  // Call it when the connection has failed; the launcher may still run and reconnect.
  void on_connection_failure(int connection);
  // Takes the actions that are due at this time.
  void tick(Clock::time_point at);
  bool finished() const { return finish_.has_value(); }
  // True if the job has finished and every launcher has disconnected.
  bool all_disconnected() const { return finished() && agents_.empty(); }

 private:
  enum class State { waiting, running, ended, stopping };
  using AgentId = std::int64_t;  // The order in which agents arrived.
  struct Agent {
    JoinRequest request;  // Its latest request.
    std::string address, server_address;
    State state = State::waiting;
    std::optional<int> connection;
    std::int64_t machine_rank = -1, first_rank = 0;  // Its ranks in its last round.
    Clock::time_point arrived_at, last_message_at;
  };
  struct Finish {
    int code = 0;
    std::string reason;
    // If true, ranks get only a short grace period, because they may wait for a dead rank.
    bool after_failure = false;
    int signal = 0;  // The signal because of which a machine has left; 0 if there was none.
  };

  Clock::time_point running_time(Clock::time_point at);
  void join(int connection, JoinRequest request, const std::string& address,
            const std::string& server_address, Clock::time_point now);
  void rejoin(int connection, const nlohmann::json& message, Clock::time_point now);
  void handle_failure(Agent& agent, const nlohmann::json& message, Clock::time_point now);
  void leave(AgentId number, const nlohmann::json& message, Clock::time_point now);
  std::optional<nlohmann::json> refusal(const JoinRequest& request, std::optional<AgentId> own_id,
                                        Clock::time_point now);
  void set_waiting(AgentId number, Clock::time_point now);
  void remove_lost(AgentId number, const std::string& why, Clock::time_point now);
  void remove_silent(Clock::time_point now, bool after_pause);
  void restart_for_newcomers(Clock::time_point now);
  void try_to_start(Clock::time_point now);
  void start_round();
  void send_round(Agent& agent);
  void restart_or_finish(Finish finish, bool counts, Clock::time_point now);
  void stop_all(const Finish& finish);
  void end(Finish finish);
  void send_end(const Agent& agent);
  void send_waiting(Clock::time_point now);

  static nlohmann::json stop_message(const Finish& finish);
  void send(const Agent& agent, const nlohmann::json& message) const;
  void bind(AgentId number, int connection);
  Agent remove_agent(AgentId number);
  std::optional<AgentId> id_at_connection(int connection) const;
  std::optional<AgentId> id_of(const std::string& identity) const;
  std::vector<AgentId> ids_in_rank_order() const;  // Agents of the next round, by rank.
  std::array<std::size_t, 4> counts() const;
  std::size_t count(State state) const { return counts()[static_cast<std::size_t>(state)]; }
  // True if the agent waits and can receive a round.
  static bool can_start(const Agent& agent) {
    return agent.state == State::waiting && agent.connection;
  }
  bool all_are_waiting() const;
  std::string count_text() const;
  std::string names_text() const;
  std::string run_id() const;
  std::string own_address() const;
  std::string address_of(const Agent& agent) const;

  CoordinatorSettings settings_;
  Send send_;
  NewRound new_round_;
  std::map<AgentId, Agent> agents_;
  std::map<int, AgentId> by_connection_;
  std::map<std::string, AgentId> by_identity_;
  AgentId arrivals_ = 0;
  std::int64_t attempt_ = -1, restarts_ = 0;
  bool some_have_succeeded_ = false;  // Some ranks have succeeded in this round.
  nlohmann::json round_, stop_;       // The last messages sent.
  JoinDelays join_delays_;
  std::optional<RunningClock> clock_;
  bool was_suspended_ = false;  // The process was suspended since the last tick.
  std::optional<Clock::time_point> gathering_since_, enough_since_;
  std::optional<Finish> finish_;
};

}  // namespace hasten::rendezvous
