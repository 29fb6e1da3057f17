#include "rendezvous/coordinator.h"

#include <algorithm>
#include <set>

#include "hasten/base/error.h"
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

// A field of a message from outside, or `other` where it has none.
const json* field_in(const json& message, const char* name, bool (json::*is_right)() const noexcept,
                     const char* expected) {
  if (!message.is_object())
    throw DataError("rendezvous.message",
                    {.what = "a message", .got = message.type_name(), .expected = "an object"});
  const auto found = message.find(name);
  if (found == message.end()) return nullptr;
  if (!((*found).*is_right)())
    throw DataError(
        "rendezvous.message",
        {.what = str("a message's ", name), .got = found->type_name(), .expected = expected});
  return &*found;
}

std::string text_in(const json& message, const char* name, const std::string& other) {
  const json* const field = field_in(message, name, &json::is_string, "a text");
  return field ? field->get<std::string>() : other;
}

// Integers alone: what a fraction or a number beyond 64 bits would become is not defined.
std::int64_t number_in(const json& message, const char* name, std::int64_t other) {
  const json* const field = field_in(message, name, &json::is_number_integer, "a whole number");
  if (field == nullptr) return other;
  const bool fits = !field->is_number_unsigned() || field->get<std::uint64_t>() >> 63 == 0;
  if (!fits)
    throw DataError("rendezvous.message",
                    {.what = str("a message's ", name), .expected = "a number below 2^63"});
  return field->get<std::int64_t>();
}

bool flag_in(const json& message, const char* name) {
  const json* const field = field_in(message, name, &json::is_boolean, "true or false");
  return field && field->get<bool>();
}

// The first letters of a digest. Whole ones: half a letter of UTF-8 could not be sent.
std::string beginning(const std::string& text) {
  std::size_t size = std::min<std::size_t>(text.size(), 12);
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  return text.substr(0, size);
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

// Everything that a message says is read before anything is changed, so that a wrong one leaves
// the state as it was.
void Coordinator::receive(int id, const json& message, const std::string& address,
                          const std::string& reached_at, Clock::time_point now) {
  const std::string kind = text_in(message, "kind", "");
  if (kind == "join") {
    Agent newcomer = newcomer_of(message, now);
    newcomer.reached_at = reached_at;
    if (newcomer.address.empty()) newcomer.address = address;
    return take_in(id, message, std::move(newcomer), now);
  }
  const auto known = agents_.find(id);
  if (known == agents_.end()) return;
  Agent& agent = known->second;
  if (kind == "failed" && agent.state == State::running) {
    // What has failed has no code of success.
    const auto code =
        static_cast<int>(std::clamp<std::int64_t>(number_in(message, "code", 1), 1, 255));
    const std::string reason = text_in(message, "reason", agent.host + " failed");
    agent.heard = now;
    agent.state = State::stopping;
    return restart_or_finish(code, reason, /*counts=*/true, now);
  }
  if (kind == "leaving") {
    const auto number =
        static_cast<int>(std::clamp<std::int64_t>(number_in(message, "signal", 15), 1, 127));
    const std::string reason = str(agent.host, " leaves: signal ", number);
    const bool serves = agent.serves;
    agents_.erase(known);
    const bool goes_on = !serves && settings_.is_elastic() &&
                         agents_.size() >= static_cast<std::size_t>(settings_.min_machines);
    return goes_on ? restart_or_finish(128 + number, reason, /*counts=*/false, now)
                   : end(128 + number, reason);
  }
  agent.heard = now;
  if (kind == "ended" && agent.state == State::running) {
    agent.state = State::ended;
    if (count(State::running) + count(State::stopping) == 0) end(0, "");
  }
}

Coordinator::Agent Coordinator::newcomer_of(const json& message, Clock::time_point now) {
  return {.host = text_in(message, "host", "?"),
          .address = text_in(message, "address", ""),
          .program = text_in(message, "program", ""),
          .job = text_in(message, "job", ""),
          .run_id = text_in(message, "run_id", ""),
          .processes = number_in(message, "processes", 1),
          .num_processes = number_in(message, "num_processes", 0),
          .wanted_rank = number_in(message, "machine_rank", -1),
          .port = number_in(message, "port", 0),
          .serves = flag_in(message, "serves"),
          .heard = now};
}

std::optional<json> Coordinator::refusal(int id, const Agent& newcomer, const json& message) const {
  if (number_in(message, "protocol", 0) != kProtocol) {
    return refused("rendezvous.version", "hasten of " + newcomer.host,
                   str("protocol ", number_in(message, "protocol", 0)), str("protocol ", kProtocol),
                   "the same hasten on every machine");
  }
  if (number_in(message, "min_machines", 0) != settings_.min_machines ||
      number_in(message, "max_machines", 0) != settings_.max_machines) {
    return refused(
        "rendezvous.machines", newcomer.host + " was started for another number of machines",
        str(number_in(message, "min_machines", 0), ":", number_in(message, "max_machines", 0)),
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
    if (newcomer.job != other.job) {
      return refused("rendezvous.machines", "rdzv_id of " + newcomer.host, "'" + newcomer.job + "'",
                     str("'", other.job, "', as on ", other.host),
                     "rdzv_id is the job's name, the same on each machine");
    }
    if (settings_.same_program && newcomer.program != other.program) {
      return refused("rendezvous.program", "another program on " + newcomer.host,
                     beginning(newcomer.program),
                     str(beginning(other.program), " (SHA-256), as on ", other.host),
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

// The job's name: as the machine they meet at has it.
std::string Coordinator::run_id() const {
  for (const auto& [id, agent] : agents_) {
    if (agent.serves) return agent.run_id;
  }
  return "";
}

void Coordinator::start_round() {
  const std::vector<int> ids = in_order();
  std::int64_t world = 0;
  for (const int id : ids) world += agents_.at(id).processes;
  const Agent& first = agents_.at(ids.front());
  json round = {{"kind", "round"},
                {"run_id", run_id()},
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
