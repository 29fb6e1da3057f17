#include "rendezvous/coordinator.h"

#include <algorithm>
#include <set>

#include "hasten/base/text.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

json refused(const char* code, std::string what, std::string got, std::string expected,
             std::string hint) {
  return {{"kind", "refused"},
          {"code", code},
          {"what", std::move(what)},
          {"got", std::move(got)},
          {"expected", std::move(expected)},
          {"hint", std::move(hint)}};
}

}  // namespace

Coordinator::Coordinator(const Settings& settings, Send send, NewRound new_round)
    : settings_(settings), send_(std::move(send)), new_round_(std::move(new_round)) {}

std::size_t Coordinator::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(),
                    [&](const auto& each) { return each.second.state == state; }));
}

bool Coordinator::is_busy() const {
  return count(State::running) + count(State::ended) + count(State::stopping) > 0;
}

void Coordinator::receive(int id, const json& message, const std::string& address,
                          const std::string& reached_at, Clock::time_point now) {
  const std::string kind = message.value("kind", "");
  const auto known = agents_.find(id);
  if (kind == "join") {
    Agent newcomer{.host = message.value("host", "?"),
                   .address = message.value("address", ""),
                   .reached_at = reached_at,
                   .program = message.value("program", ""),
                   .processes = message.value("processes", std::int64_t{1}),
                   .num_processes = message.value("num_processes", std::int64_t{0}),
                   .wanted_rank = message.value("machine_rank", std::int64_t{-1}),
                   .port = message.value("port", std::int64_t{0}),
                   .serves = message.value("serves", false),
                   .heard = now};
    if (newcomer.address.empty()) newcomer.address = address;
    return take_in(id, message, std::move(newcomer), now);
  }
  if (known == agents_.end()) return;
  Agent& agent = known->second;
  agent.heard = now;
  if (kind == "failed" && agent.state == State::running) {
    agent.state = State::stopping;
    restart_or_finish(message.value("code", 1), message.value("reason", agent.host + " failed"),
                      /*counts=*/true, now);
  } else if (kind == "ended" && agent.state == State::running) {
    agent.state = State::ended;
    if (count(State::running) + count(State::stopping) == 0) end(0, "");
  } else if (kind == "leaving") {
    const int number = message.value("signal", 15);
    const std::string reason = str(agent.host, " leaves: signal ", number);
    const bool serves = agent.serves;
    agents_.erase(known);
    const bool goes_on = !serves && settings_.is_elastic() &&
                         agents_.size() >= static_cast<std::size_t>(settings_.min_machines);
    if (goes_on) restart_or_finish(128 + number, reason, /*counts=*/false, now);
    if (!goes_on) end(128 + number, reason);
  }
}

std::optional<json> Coordinator::refusal(int id, const Agent& newcomer, const json& message) const {
  if (message.value("protocol", std::int64_t{0}) != kProtocol) {
    return refused("rendezvous.version", "hasten of " + newcomer.host,
                   str("protocol ", message.value("protocol", std::int64_t{0})),
                   str("protocol ", kProtocol), "the same hasten on every machine");
  }
  if (message.value("min_machines", std::int64_t{0}) != settings_.min_machines ||
      message.value("max_machines", std::int64_t{0}) != settings_.max_machines) {
    return refused("rendezvous.machines",
                   newcomer.host + " was started for another number of machines",
                   str(message.value("min_machines", std::int64_t{0}), ":",
                       message.value("max_machines", std::int64_t{0})),
                   str(settings_.min_machines, ":", settings_.max_machines),
                   "--num_machines (--nnodes) must be the same on every machine");
  }
  if (newcomer.processes < 1 || newcomer.processes > 4096)
    return refused("rendezvous.machines", "processes of " + newcomer.host, str(newcomer.processes),
                   "1 to 4096", "");
  for (const auto& [other_id, other] : agents_) {
    if (other_id == id) continue;
    if (newcomer.wanted_rank >= 0 && newcomer.wanted_rank == other.wanted_rank) {
      return refused("rendezvous.machine-rank",
                     str("machine_rank ", newcomer.wanted_rank, " of ", newcomer.host, " (",
                         newcomer.address, ")"),
                     str(other.host, " (", other.address, ") has it"),
                     "a rank of its own for each machine", "");
    }
    if (newcomer.num_processes != other.num_processes) {
      return refused("rendezvous.machines", "num_processes of " + newcomer.host,
                     str(newcomer.num_processes), str(other.num_processes, ", as on ", other.host),
                     "num_processes is the total of all machines, the same on each");
    }
    if (settings_.same_program && newcomer.program != other.program) {
      return refused("rendezvous.program", "another program on " + newcomer.host,
                     newcomer.program.substr(0, 12),
                     str(other.program.substr(0, 12), " (SHA-256), as on ", other.host),
                     "install the same build, or say --rdzv_conf same_program=false");
    }
  }
  return std::nullopt;
}

void Coordinator::take_in(int id, const json& message, Agent newcomer, Clock::time_point now) {
  if (const auto no = refusal(id, newcomer, message)) return send_(id, *no);
  const auto known = agents_.find(id);
  newcomer.arrival = known == agents_.end() ? arrivals_++ : known->second.arrival;
  if (known != agents_.end()) newcomer.machine_rank = known->second.machine_rank;
  const bool is_new = known == agents_.end();
  const std::string host = newcomer.host;
  agents_[id] = std::move(newcomer);
  if (finish_) {
    send_(id, {{"kind", "finish"}, {"code", finish_->code}, {"reason", finish_->reason}});
    return;
  }
  if (!gathering_since_) gathering_since_ = now;
  const std::size_t in_round = count(State::running) + count(State::ended);
  if (is_new && count(State::running) > 0 &&
      in_round < static_cast<std::size_t>(settings_.max_machines))
    restart_or_finish(0, host + " has come", /*counts=*/false, now);
  try_to_start(now);
}

std::vector<int> Coordinator::in_order() const {
  std::vector<int> ids;
  for (const auto& [id, agent] : agents_) {
    if (agent.state == State::waiting) ids.push_back(id);
  }
  // Those who say their rank by it; else the machine they meet at, then as in the last round, then
  // as they came.
  const auto place = [&](int id) {
    const Agent& agent = agents_.at(id);
    const std::int64_t before =
        agent.machine_rank < 0 ? settings_.max_machines : agent.machine_rank;
    return std::tuple(agent.wanted_rank, !agent.serves, before, agent.arrival);
  };
  std::sort(ids.begin(), ids.end(), [&](int a, int b) { return place(a) < place(b); });
  if (ids.size() > static_cast<std::size_t>(settings_.max_machines))
    ids.resize(static_cast<std::size_t>(settings_.max_machines));
  return ids;
}

void Coordinator::try_to_start(Clock::time_point now) {
  if (finish_ || is_busy()) return;
  const std::size_t here = count(State::waiting);
  if (here < static_cast<std::size_t>(settings_.min_machines)) {
    enough_since_.reset();
    return;
  }
  if (!enough_since_) enough_since_ = now;
  const bool full = here >= static_cast<std::size_t>(settings_.max_machines);
  if (full || had_a_round_ || now >= *enough_since_ + seconds(settings_.last_call)) start_round();
}

// This machine's own agent comes over loopback, which is no address for the others.
std::string Coordinator::address_of(const Agent& agent) const {
  return is_loopback(agent.address) ? own_address() : agent.address;
}

// Where ranks find this machine: as others have reached it.
std::string Coordinator::own_address() const {
  for (const auto& [id, agent] : agents_) {
    if (!is_loopback(agent.reached_at)) return agent.reached_at;
  }
  return "127.0.0.1";
}

void Coordinator::start_round() {
  const std::vector<int> ids = in_order();
  std::int64_t world = 0;
  for (const int id : ids) world += agents_.at(id).processes;
  const Agent& first = agents_.at(ids.front());
  json round = {{"kind", "round"},
                {"attempt", attempt_++},
                {"num_machines", ids.size()},
                {"world_size", world},
                {"master_addr", address_of(first)},
                {"serves_at", own_address()},
                {"master_port", first.port}};
  if (new_round_) new_round_();
  std::int64_t first_rank = 0;
  for (std::size_t place = 0; place < ids.size(); ++place) {
    Agent& agent = agents_.at(ids[place]);
    agent.state = State::running;
    agent.machine_rank = static_cast<std::int64_t>(place);
    round["machine_rank"] = place;
    round["first_rank"] = first_rank;
    first_rank += agent.processes;
    send_(ids[place], round);
  }
  had_a_round_ = true;
  gathering_since_.reset();
  enough_since_.reset();
  told_.clear();
}

void Coordinator::stop_all(const std::string& reason, bool after_failure) {
  for (auto& [id, agent] : agents_) {
    if (agent.state == State::ended) agent.state = State::stopping;
    if (agent.state == State::waiting) continue;
    agent.state = State::stopping;
    send_(id, {{"kind", "stop"}, {"reason", reason}, {"after_failure", after_failure}});
  }
}

void Coordinator::restart_or_finish(int code, const std::string& reason, bool counts,
                                    Clock::time_point now) {
  if (finish_) return;
  if (counts && restarts_ >= settings_.max_restarts) return end(code, reason);
  if (counts) ++restarts_;
  gathering_since_ = now;
  stop_all(reason, counts);
  try_to_start(now);
}

void Coordinator::end(int code, const std::string& reason) {
  if (finish_) return;
  finish_ = Finish{code, reason};
  for (auto& [id, agent] : agents_) {
    const bool idle = agent.state == State::waiting || agent.state == State::ended;
    if (idle) send_(id, {{"kind", "finish"}, {"code", code}, {"reason", reason}});
    if (!idle) send_(id, {{"kind", "stop"}, {"reason", reason}, {"after_failure", code < 128}});
  }
}

void Coordinator::lost(int id, const std::string& why, Clock::time_point now) {
  const auto known = agents_.find(id);
  if (known == agents_.end()) return;
  const Agent agent = known->second;
  agents_.erase(known);
  if (finish_) return;
  const std::string reason = str("machine ", agent.machine_rank, " (", agent.host, ", ",
                                 agent.address, ") is lost: ", why);
  if (agent.state == State::running || agent.state == State::ended) {
    restart_or_finish(1, reason, /*counts=*/true, now);
  } else {
    try_to_start(now);
  }
}

std::string Coordinator::waiting_text(Clock::time_point now) const {
  std::vector<std::string> here;
  std::set<std::int64_t> missing;
  for (std::int64_t rank = 0; rank < settings_.max_machines; ++rank) missing.insert(rank);
  bool by_rank = true;
  for (const auto& [id, agent] : agents_) {
    here.push_back(str(agent.host, " (", address_of(agent), ")"));
    by_rank = by_rank && agent.wanted_rank >= 0;
    missing.erase(agent.wanted_rank);
  }
  const std::string wanted = settings_.is_elastic()
                                 ? str(settings_.min_machines, " to ", settings_.max_machines)
                                 : str(settings_.max_machines);
  std::string text = str(here.size(), " of ", wanted, " machines are here: ", join(here, ", "));
  if (by_rank && !missing.empty()) {
    std::vector<std::string> names;
    for (const std::int64_t rank : missing) names.push_back(std::to_string(rank));
    text += "; missing: machine_rank " + join(names, ", ");
  }
  const auto until = gathering_since_.value_or(now) + seconds(settings_.join_timeout);
  text += str("; ", std::chrono::duration_cast<std::chrono::seconds>(until - now).count(),
              " s are left");
  return text;
}

void Coordinator::tick(Clock::time_point now) {
  std::vector<int> silent;
  for (const auto& [id, agent] : agents_) {
    if (now - agent.heard > seconds(settings_.keep_alive_timeout)) silent.push_back(id);
  }
  for (const int id : silent)
    lost(id, str("no word for ", fixed(settings_.keep_alive_timeout, 1), " s"), now);
  for (const auto& [id, agent] : agents_) send_(id, {{"kind", "alive"}});
  if (finish_) return;
  try_to_start(now);
  if (!gathering_since_ || count(State::running) > 0) return;
  if (now >= *gathering_since_ + seconds(settings_.join_timeout))
    return end(1, "too few machines in time: " + waiting_text(now));
  for (const auto& [id, agent] : agents_) {
    if (agent.state == State::waiting)
      send_(id, {{"kind", "waiting"}, {"text", waiting_text(now)}});
  }
}

}  // namespace hasten::rendezvous
