// File: rendezvous/coordinator.h (internal)
// Decides which machines make up a job, in rounds: who is there, who has which rank, when all stop,
// start again or end. One of the machines has it; the launchers of all (agents) talk to it.
//
//   agent -> join {...}            coordinator -> waiting {...} | refused {...} | round {...}
//   agent -> failed {...} | ended | leaving {signal} | alive
//                                  coordinator -> stop {reason} | alive
//   agent -> join {...} again      coordinator -> round {...} | finish {code, reason}
//
// Rounds: with min_machines there, an elastic job waits `last_call` more for others the first time;
// with max_machines it starts at once. Later comers are taken in by a new round where there is
// room, and wait for a place where there is none. A rank's failure, or a machine's loss, takes one
// of max_restarts; a machine that comes, or leaves an elastic job by a signal, takes none.
//
// No network, no thread and no clock of its own: a state that messages and times go into. Throws
// DataError "rendezvous.message" for a message whose fields are of the wrong types; the state is
// then as before. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/connection.h"

namespace hasten::rendezvous {

inline constexpr std::int64_t kProtocol = 1;

struct Settings {
  std::int64_t min_machines = 1;
  std::int64_t max_machines = 1;
  std::int64_t max_restarts = 0;
  double join_timeout = 600;      // seconds for a round to come together
  double last_call = 30;          // for others, once min_machines are there
  double keep_alive_timeout = 5;  // without a word a machine is lost
  bool same_program = true;       // the program's bytes are the same on all machines
  bool is_elastic() const { return min_machines != max_machines; }
};

class Coordinator {
 public:
  using Send = std::function<void(int agent, const nlohmann::json& message)>;
  using NewRound = std::function<void()>;  // before the ranks of a round are told
  Coordinator(const Settings& settings, Send send, NewRound new_round = {});

  // `address`: the agent's; `reached_at`: this machine's, as that agent sees it.
  void receive(int agent, const nlohmann::json& message, const std::string& address,
               const std::string& reached_at, Clock::time_point now);
  void lost(int agent, const std::string& why, Clock::time_point now);
  // What falls due.
  void tick(Clock::time_point now);
  bool finished() const { return finish_.has_value(); }
  // All that have been told the end have gone.
  bool all_gone() const { return finished() && agents_.empty(); }

 private:
  enum class State { waiting, running, ended, stopping };
  struct Agent {
    State state = State::waiting;
    std::string host, address, reached_at, program, job, run_id;
    std::int64_t processes = 1, num_processes = 0, wanted_rank = -1, port = 0, arrival = 0;
    std::int64_t machine_rank = -1;  // in the last round it was in
    bool serves = false;             // this process's own: without it there is no job
    Clock::time_point heard;
  };
  struct Finish {
    int code;
    std::string reason;
  };

  static Agent newcomer_of(const nlohmann::json& message, Clock::time_point now);
  void take_in(int id, const nlohmann::json& message, Agent newcomer, Clock::time_point now);
  std::optional<nlohmann::json> refusal(int id, const Agent& newcomer,
                                        const nlohmann::json& message) const;
  void try_to_start(Clock::time_point now);
  void start_round();
  void restart_or_finish(int code, const std::string& reason, bool counts, Clock::time_point now);
  void stop_all(const std::string& reason, bool after_failure);
  void end(int code, const std::string& reason);
  std::vector<int> in_order() const;  // of those that wait, as ranks are given
  std::size_t count(State state) const;
  bool is_busy() const;  // a round's machines run, or have not all stopped
  std::string waiting_text(Clock::time_point now) const;
  std::string run_id() const;
  std::string own_address() const;
  std::string address_of(const Agent& agent) const;

  Settings settings_;
  Send send_;
  NewRound new_round_;
  std::map<int, Agent> agents_;
  std::int64_t arrivals_ = 0, attempt_ = 0, restarts_ = 0;
  bool had_a_round_ = false;
  std::optional<Clock::time_point> gathering_since_, enough_since_;
  std::string told_;
  std::optional<Finish> finish_;
};

}  // namespace hasten::rendezvous
