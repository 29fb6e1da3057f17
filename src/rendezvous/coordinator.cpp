#include "rendezvous/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/text.h"
#include "rendezvous/refusal.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;

// Launchers send `alive` each second. If one has missed several, another may take its machine_rank.
constexpr auto kSilenceLimit = std::chrono::seconds(3);
constexpr std::size_t kMaxReasonBytes = 64 << 10;
constexpr std::size_t kMaxNames = 16;  // Names in one line of output.

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

Coordinator::Coordinator(const CoordinatorSettings& settings, Send send, NewRound new_round)
    : settings_(settings),
      send_(std::move(send)),
      new_round_(std::move(new_round)),
      join_delays_(settings) {}

Clock::time_point Coordinator::running_time(Clock::time_point at) {
  if (!clock_) clock_.emplace(at);
  const auto now = clock_->now(at);
  was_suspended_ = was_suspended_ || clock_->was_suspended();
  return now;
}

void Coordinator::send(const Agent& agent, const json& message) const {
  if (agent.connection) send_(*agent.connection, message);
}

std::optional<Coordinator::AgentId> Coordinator::id_at_connection(int connection) const {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Coordinator::AgentId> Coordinator::id_of(const std::string& identity) const {
  const auto found = by_identity_.find(identity);
  return identity.empty() || found == by_identity_.end() ? std::nullopt
                                                         : std::optional(found->second);
}

// Makes this the agent's only connection; messages from its former one are ignored.
void Coordinator::bind(AgentId number, int connection) {
  Agent& agent = agents_.at(number);
  if (agent.connection) by_connection_.erase(*agent.connection);
  if (const auto other = id_at_connection(connection)) agents_.at(*other).connection.reset();
  agent.connection = connection;
  by_connection_[connection] = number;
}

Coordinator::Agent Coordinator::remove_agent(AgentId number) {
  const auto found = agents_.find(number);
  Agent agent = std::move(found->second);
  agents_.erase(found);
  if (agent.connection) by_connection_.erase(*agent.connection);
  if (id_of(agent.request.agent) == number) by_identity_.erase(agent.request.agent);
  return agent;
}

std::array<std::size_t, 4> Coordinator::counts() const {
  std::array<std::size_t, 4> counts{};
  for (const auto& [number, agent] : agents_) ++counts[static_cast<std::size_t>(agent.state)];
  return counts;
}

json Coordinator::stop_message(const Finish& finish) {
  return {{"kind", "stop"},
          {"reason", finish.reason},
          {"after_failure", finish.after_failure},
          {"signal", finish.signal}};
}

// True if no agent of the last round runs or has yet to stop.
bool Coordinator::all_are_waiting() const { return count(State::waiting) == agents_.size(); }

// Reads all fields before it changes anything, so that an invalid message leaves the state
// unchanged.
void Coordinator::receive(int connection, const json& message, const std::string& address,
                          const std::string& server_address, Clock::time_point at) {
  const std::string kind = text_in(message, "kind", "");
  const auto now = running_time(at);
  if (kind == "join")
    return join(connection, join_request_of(message), address, server_address, now);
  if (kind == "rejoin") return rejoin(connection, message, now);
  const auto number = id_at_connection(connection);
  if (!number) return;
  Agent& agent = agents_.at(*number);
  // Messages about an earlier round have come too late.
  const bool is_current = number_in(message, "attempt", attempt_) == attempt_;
  if (kind == "leaving") return leave(*number, message, now);
  if (kind == "exited") return remove_lost(*number, "its launcher has ended", now);
  if (kind == "reconnecting") return on_connection_failure(connection);
  if (kind == "failed" && is_current && agent.state == State::running)
    return handle_failure(agent, message, now);
  agent.last_message_at = now;
  if (kind == "ended" && is_current && agent.state == State::running) {
    agent.state = State::ended;
    some_have_succeeded_ = true;
    if (count(State::running) + count(State::stopping) == 0) end({});
  }
}

void Coordinator::handle_failure(Agent& agent, const json& message, Clock::time_point now) {
  // A failure never has exit code 0.
  const auto code =
      static_cast<int>(std::clamp<std::int64_t>(number_in(message, "code", 1), 1, 255));
  const std::string text = text_in(message, "reason", agent.request.host + " failed");
  // The text is shortened, because every launcher receives it.
  const std::string reason(utf8_prefix(text, kMaxReasonBytes));
  agent.last_message_at = now;
  agent.state = State::stopping;
  restart_or_finish({code, reason, /*after_failure=*/true}, /*counts=*/true, now);
}

void Coordinator::leave(AgentId number, const json& message, Clock::time_point now) {
  const auto signal =
      static_cast<int>(std::clamp<std::int64_t>(number_in(message, "signal", 15), 1, 127));
  const Agent agent = remove_agent(number);
  if (finish_) return;
  const Finish finish{.code = 128 + signal,
                      .reason = str(agent.request.host, " left because of signal ", signal),
                      .signal = signal};
  if (agent.request.hosts_coordinator) return end(finish);
  if (agent.state != State::running) return try_to_start(now);
  restart_or_finish(finish, /*counts=*/!settings_.is_elastic(), now);
}

// Compares the newcomer with one machine of the job, since all of them agree, and its machine_rank
// with the machine_rank of every machine. A silent machine loses its machine_rank to the newcomer.
std::optional<json> Coordinator::refusal(const JoinRequest& request, std::optional<AgentId> own_id,
                                         Clock::time_point now) {
  if (auto reply = check_request(request, settings_)) return reply;
  const auto other = std::find_if(agents_.begin(), agents_.end(),
                                  [&](const auto& each) { return each.first != own_id; });
  if (other == agents_.end()) return std::nullopt;
  if (auto reply = check_consistency(request, other->second.request, settings_)) return reply;
  if (request.requested_rank < 0) return std::nullopt;
  const auto holder = std::find_if(agents_.begin(), agents_.end(), [&](const auto& each) {
    return each.first != own_id && each.second.request.requested_rank == request.requested_rank;
  });
  if (holder == agents_.end()) return std::nullopt;
  const Agent& agent = holder->second;
  if (agent.connection && now - agent.last_message_at <= kSilenceLimit) {
    JoinRequest named = agent.request;
    named.address = agent.address;
    return rank_taken_refusal(request, named);
  }
  remove_lost(holder->first, "another launcher has taken its machine_rank", now);
  return std::nullopt;
}

void Coordinator::join(int connection, JoinRequest request, const std::string& address,
                       const std::string& server_address, Clock::time_point now) {
  if (request.address.empty()) request.address = address;
  std::optional<AgentId> known = id_of(request.agent);
  if (!known && request.agent.empty()) known = id_at_connection(connection);
  if (const auto reply = refusal(request, known, now)) return send_(connection, *reply);
  const AgentId number = known.value_or(arrivals_);
  if (!known) agents_[arrivals_++].arrived_at = now;
  if (!request.agent.empty()) by_identity_[request.agent] = number;
  bind(number, connection);
  Agent& agent = agents_.at(number);
  agent.address = request.address;
  agent.server_address = server_address;
  agent.request = std::move(request);
  agent.last_message_at = now;
  // The round began while this launcher had no connection.
  if (agent.state == State::running && !finish_ && agent.request.attempt < attempt_)
    return send_round(agent);
  set_waiting(number, now);
}

void Coordinator::set_waiting(AgentId number, Clock::time_point now) {
  Agent& agent = agents_.at(number);
  agent.state = State::waiting;
  if (finish_) return send_end(agent);
  if (all_are_waiting() && !gathering_since_) gathering_since_ = now;
  restart_for_newcomers(now);
  try_to_start(now);
}

// The launcher's ranks have continued without a connection. A launcher that has been given up, or
// that belongs to another coordinator, must stop them and join again.
void Coordinator::rejoin(int connection, const json& message, Clock::time_point now) {
  const std::string identity = text_in(message, "agent", "");
  const std::int64_t attempt = number_in(message, "attempt", -1);
  const auto number = id_of(identity);
  if (!number) {
    return send_(connection, {{"kind", "stop"},
                              {"reason", "the coordinator had given up this machine as lost"},
                              {"after_failure", true}});
  }
  bind(*number, connection);
  Agent& agent = agents_.at(*number);
  agent.last_message_at = now;
  // The launcher sends `join` next.
  if (attempt != attempt_ || agent.state == State::waiting) return;
  if (finish_) return send_end(agent);
  if (agent.state == State::stopping) send(agent, stop_);
}

// Restarts the job with the machines that have waited long enough, if there is room. Once the ranks
// of a machine have succeeded, the job is about to end and is not restarted.
void Coordinator::restart_for_newcomers(Clock::time_point now) {
  const auto [waiting, running, ended, stopping] = counts();
  const auto max_machines = static_cast<std::size_t>(settings_.max_machines);
  const bool has_room = running < max_machines;
  if (finish_ || waiting == 0 || running == 0 || ended + stopping > 0) return;
  if (!has_room || some_have_succeeded_) return;
  std::vector<std::string> hosts;
  for (const AgentId number : ids_in_rank_order()) {
    const Agent& agent = agents_.at(number);
    if (hosts.size() == max_machines - running) break;  // The others wait for a place.
    if (now - agent.arrived_at >= join_delays_.delay_for(agent.request.host, now))
      hosts.push_back(agent.request.host);
  }
  if (hosts.empty()) return;
  for (const std::string& host : hosts) join_delays_.record_restart(host, now);
  const std::string others = hosts.size() == 1 ? "" : str(" and ", hosts.size() - 1, " more");
  restart_or_finish(
      {0, str(hosts.front(), others, hosts.size() == 1 ? " has" : " have", " joined")},
      /*counts=*/false, now);
}

std::vector<Coordinator::AgentId> Coordinator::ids_in_rank_order() const {
  std::vector<AgentId> ids;
  for (const auto& [number, agent] : agents_) {
    if (can_start(agent)) ids.push_back(number);
  }
  // Sorts by requested machine_rank. Machines without one are sorted as follows: first the
  // coordinator's machine, then the order of the last round, then the order of arrival.
  const auto place = [&](AgentId number) {
    const Agent& agent = agents_.at(number);
    const std::int64_t before =
        agent.machine_rank < 0 ? settings_.max_machines : agent.machine_rank;
    return std::tuple(agent.request.requested_rank, !agent.request.hosts_coordinator, before,
                      number);
  };
  std::sort(ids.begin(), ids.end(), [&](AgentId a, AgentId b) { return place(a) < place(b); });
  if (ids.size() > static_cast<std::size_t>(settings_.max_machines))
    ids.resize(static_cast<std::size_t>(settings_.max_machines));
  return ids;
}

void Coordinator::try_to_start(Clock::time_point now) {
  if (finish_ || !all_are_waiting()) return;
  const auto present = static_cast<std::size_t>(std::count_if(
      agents_.begin(), agents_.end(), [&](const auto& each) { return can_start(each.second); }));
  if (present < static_cast<std::size_t>(settings_.min_machines)) {
    enough_since_.reset();
    return;
  }
  if (!enough_since_) enough_since_ = now;
  const bool full = present >= static_cast<std::size_t>(settings_.max_machines);
  const bool had_a_round = attempt_ >= 0;
  if (full || had_a_round || now >= *enough_since_ + seconds(settings_.last_call_timeout))
    start_round();
}

// The agent on this machine connects over loopback, which other machines cannot use.
std::string Coordinator::address_of(const Agent& agent) const {
  return is_loopback(agent.address) ? own_address() : agent.address;
}

// Ranks use the address at which other agents have reached this machine.
std::string Coordinator::own_address() const {
  for (const auto& [number, agent] : agents_) {
    if (!is_loopback(agent.server_address)) return agent.server_address;
  }
  return "127.0.0.1";
}

// The job's name, from the launcher on the coordinator's machine.
std::string Coordinator::run_id() const {
  for (const auto& [number, agent] : agents_) {
    if (agent.request.hosts_coordinator) return agent.request.run_id;
  }
  return "";
}

void Coordinator::start_round() {
  const std::vector<AgentId> ids = ids_in_rank_order();
  std::int64_t world = 0;
  for (const AgentId number : ids) world += agents_.at(number).request.processes;
  const Agent& first = agents_.at(ids.front());
  round_ = {{"kind", "round"},
            {"run_id", run_id()},
            {"attempt", ++attempt_},
            {"earlier_restarts", settings_.earlier_restarts},
            {"num_machines", ids.size()},
            {"world_size", world},
            {"master_addr", address_of(first)},
            {"coordinator_address", own_address()},
            {"master_port", first.request.port}};
  if (new_round_) new_round_();
  std::int64_t first_rank = 0;
  for (std::size_t place = 0; place < ids.size(); ++place) {
    Agent& agent = agents_.at(ids[place]);
    agent.state = State::running;
    agent.machine_rank = static_cast<std::int64_t>(place);
    agent.first_rank = first_rank;
    first_rank += agent.request.processes;
    send_round(agent);
  }
  some_have_succeeded_ = false;
  gathering_since_.reset();
  enough_since_.reset();
}

void Coordinator::send_round(Agent& agent) {
  round_["machine_rank"] = agent.machine_rank;
  round_["first_rank"] = agent.first_rank;
  send(agent, round_);
}

void Coordinator::stop_all(const Finish& finish) {
  stop_ = stop_message(finish);
  for (auto& [number, agent] : agents_) {
    if (agent.state == State::waiting) continue;
    agent.state = State::stopping;
    send(agent, stop_);
  }
}

void Coordinator::restart_or_finish(Finish finish, bool counts, Clock::time_point now) {
  if (finish_) return;
  if (counts && restarts_ >= settings_.max_restarts) return end(std::move(finish));
  if (counts) ++restarts_;
  gathering_since_ = now;
  stop_all(finish);
  try_to_start(now);
}

void Coordinator::end(Finish finish) {
  if (finish_) return;
  finish_ = std::move(finish);
  for (const auto& [number, agent] : agents_) send_end(agent);
}

// Tells launchers whose ranks run to stop them. They receive `finish` when they join again.
void Coordinator::send_end(const Agent& agent) {
  if (agent.state == State::waiting || agent.state == State::ended) {
    send(agent, {{"kind", "finish"}, {"code", finish_->code}, {"reason", finish_->reason}});
  } else {
    send(agent, stop_message(*finish_));
  }
}

void Coordinator::remove_lost(AgentId number, const std::string& why, Clock::time_point now) {
  const Agent agent = remove_agent(number);
  if (finish_) return;
  const std::string place = agent.machine_rank < 0 ? "" : str(" ", agent.machine_rank);
  const std::string reason =
      str("machine", place, " (", agent.request.host, ", ", address_of(agent), ") is lost: ", why);
  if (agent.request.hosts_coordinator) return end({1, reason, /*after_failure=*/true});
  if (agent.state == State::running) {
    restart_or_finish({1, reason, /*after_failure=*/true}, /*counts=*/true, now);
  } else {
    try_to_start(now);
  }
}

void Coordinator::on_disconnect(int connection, const std::string& why, Clock::time_point at) {
  const auto now = running_time(at);
  if (const auto number = id_at_connection(connection)) remove_lost(*number, why, now);
}

void Coordinator::on_connection_failure(int connection) {
  const auto number = id_at_connection(connection);
  if (!number) return;
  Agent& agent = agents_.at(*number);
  const bool knows_the_end =
      finish_ && (agent.state == State::waiting || agent.state == State::ended);
  if (knows_the_end) {
    remove_agent(*number);
    return;
  }
  agent.connection.reset();
  by_connection_.erase(connection);
}

std::string Coordinator::count_text() const {
  if (agents_.size() > static_cast<std::size_t>(settings_.max_machines)) {
    return str(agents_.size(), " machines are here, at most ", settings_.max_machines,
               " take part");
  }
  const std::string wanted = settings_.is_elastic()
                                 ? str(settings_.min_machines, " to ", settings_.max_machines)
                                 : str(settings_.max_machines);
  return str(agents_.size(), " of ", wanted, " machines are present");
}

// Lists the machines that are present and the ranks that are missing, limited to a readable length.
std::string Coordinator::names_text() const {
  std::string text;
  std::set<std::int64_t> ranks;
  std::vector<std::string> present, missing;
  const bool few = agents_.size() <= kMaxNames;
  for (const auto& [number, agent] : agents_) {
    if (few) present.push_back(str(agent.request.host, " (", address_of(agent), ")"));
    if (agent.request.requested_rank >= 0) ranks.insert(agent.request.requested_rank);
  }
  if (few && !present.empty()) text += ": " + hasten::join(present, ", ");
  if (ranks.empty()) return text;
  std::size_t more = 0;
  for (std::int64_t rank = 0; rank < settings_.max_machines; ++rank) {
    if (ranks.count(rank) == 1) continue;
    if (missing.size() < kMaxNames)
      missing.push_back(std::to_string(rank));
    else
      ++more;
  }
  if (missing.empty()) return text;
  text += "; missing: machine_rank " + hasten::join(missing, ", ");
  return more == 0 ? text : text + str(" and ", more, " more");
}

// Each text is built once for all machines. Only the launcher on the coordinator's machine receives
// names, so the bytes sent do not grow with the square of the number of machines.
void Coordinator::send_waiting(Clock::time_point now) {
  const auto until = *gathering_since_ + seconds(settings_.join_timeout);
  const std::string left =
      str("; ", std::chrono::duration_cast<std::chrono::seconds>(until - now).count(), " s left");
  const json for_others = {{"kind", "waiting"}, {"text", count_text() + left}};
  const json for_host = {{"kind", "waiting"}, {"text", count_text() + names_text() + left}};
  if (now >= until) {
    const std::string text = for_host["text"];
    return end({1, "too few machines within join_timeout: " + text, /*after_failure=*/true});
  }
  for (const auto& [number, agent] : agents_) {
    if (agent.state == State::waiting)
      send(agent, agent.request.hosts_coordinator ? for_host : for_others);
  }
}

// After a pause of this process, messages that were sent in the meantime have not been read.
void Coordinator::remove_silent(Clock::time_point now, bool after_pause) {
  std::vector<AgentId> silent;
  for (auto& [number, agent] : agents_) {
    if (after_pause) agent.last_message_at = now;
    if (now - agent.last_message_at > seconds(settings_.keep_alive_timeout))
      silent.push_back(number);
  }
  for (const AgentId number : silent)
    remove_lost(number, str("no message for ", fixed(settings_.keep_alive_timeout, 1), " s"), now);
}

void Coordinator::tick(Clock::time_point at) {
  const auto now = running_time(at);
  remove_silent(now, std::exchange(was_suspended_, false));
  const json alive = {{"kind", "alive"}};
  for (const auto& [number, agent] : agents_) send(agent, alive);
  if (finish_) return;
  restart_for_newcomers(now);
  try_to_start(now);
  if (gathering_since_ && count(State::running) == 0) send_waiting(now);
}

}  // namespace hasten::rendezvous
