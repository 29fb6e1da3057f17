// A libFuzzer target for messages between machines and processes, and for the options and variables
// that contain their addresses. CMakeLists.txt builds it without LibTorch and OpenSSL.
//
// The first byte selects the parser. The target checks that errors are hasten's own, that every
// answer can be sent, and that a wrong message of one client does not affect the others.
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/options/launch_options.h"
#include "machine/endpoint.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/message.h"
#include "rendezvous/store_table.h"

using namespace hasten;
using namespace hasten::rendezvous;
using nlohmann::json;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// Reads the input chunk by chunk. Returns zeros after its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view chunk(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view line() {
    const std::string_view taken = chunk(std::min(rest_.find('\n'), rest_.size()));
    if (!rest_.empty()) rest_.remove_prefix(1);
    return taken;
  }

 private:
  std::string_view rest_;
};

// Composes half of the messages from the input, so that the fuzzer need not guess their format.
std::string store_message(Input& input) {
  const std::uint8_t how = input.byte();
  if (how % 2 == 0) return std::string(input.chunk(input.byte()));
  Packer packer;
  packer.number(how).number(how / 2 % 12);
  const std::vector<std::string> texts = {std::string(input.chunk(input.byte() % 4)),
                                          std::string(input.chunk(input.byte() % 32)),
                                          std::string(input.chunk(input.byte() % 4))};
  switch (how / 2 % 12) {
    case 1:
    case 2:
      return packer.number(input.byte() % 50).texts(texts).bytes();
    case 3:
      return packer.text(texts[0]).number(static_cast<std::int8_t>(input.byte())).bytes();
    case 6:
      return packer.texts(texts).bytes();
    default:
      return packer.text(texts[0]).text(texts[1]).text(texts[2]).bytes();
  }
}

void feed_store(Input& input) {
  std::set<int> open;
  std::size_t answers = 0, requests = 0;
  StoreTable table([&](int connection, const std::string& message) {
    require(open.count(connection) == 1);  // a removed connection gets no answer
    Unpacker fields(message);
    fields.number();  // the request number
    const std::int64_t kind = fields.number();
    require(kind >= 0 && kind <= 2 && message.size() <= kMaxMessageBytes);
    ++answers;
  });
  Clock::time_point now{};
  while (!input.empty()) {
    const std::uint8_t what = input.byte();
    const int connection = what % 4;
    now += std::chrono::milliseconds(input.byte());
    if (what / 4 % 8 == 7) {
      table.remove_connection(connection);
      open.erase(connection);
    } else if (what / 4 % 16 == 6) {
      table.clear();
    } else {
      open.insert(connection);
      ++requests;
      try {
        table.handle(connection, store_message(input), now);
      } catch (const DataError&) {
        require(answers < requests);
      }
    }
    // In half of the steps the answers stay queued until a later step, when their keys may have
    // been erased.
    while (what % 2 == 0 && table.has_ready_request()) table.answer_ready_request();
    table.tick(now);
    require(answers <= requests);
    if (const auto next = table.next_deadline()) require(*next > now);
  }
}

// Converts one line of the input to a message. The line is JSON, or selects a message of the
// protocol and overrides some of its fields.
json agent_message(std::string_view line, int agent, const CoordinatorSettings& settings) {
  if (line.empty()) return {{"kind", "alive"}};
  static const char* const kinds[] = {"join",  "failed", "ended",       "leaving",
                                      "alive", "rejoin", "reconnecting"};
  const auto kind = static_cast<std::size_t>(line[0] - '0');
  if (kind >= std::size(kinds)) return json::parse(line);
  json message = {{"kind", kinds[kind]}};
  if (kind == 0) {
    message.update({{"protocol", kProtocol},
                    {"agent", str("agent ", agent)},
                    {"host", str("node", agent)},
                    {"program", "p"},
                    {"processes", 2},
                    {"min_machines", settings.min_machines},
                    {"max_machines", settings.max_machines}});
  }
  if (kind == 5) message.update({{"agent", "agent 1"}, {"attempt", 0}});
  if (line.size() > 1) {
    const json more = json::parse(line.substr(1));
    if (more.is_object()) message.update(more);
  }
  return message;
}

// Checks the messages to agents. In a round, the ranks of each machine follow the ranks of the
// machine before it.
class MessageCheck {
 public:
  explicit MessageCheck(const CoordinatorSettings& settings) : settings_(settings) {}

  void check(const json& message) {
    require(!message.dump().empty());  // throws if it cannot be sent
    if (message.at("kind") != "round") return;
    const std::int64_t attempt = message.at("attempt"), machine = message.at("machine_rank"),
                       first = message.at("first_rank"), world = message.at("world_size"),
                       machines = message.at("num_machines");
    require(machines >= settings_.min_machines && machines <= settings_.max_machines);
    require(machine < machines && first < world && world <= machines * 4096);
    require(attempt >= attempt_);
    if (attempt > attempt_) first_ranks_.clear();
    attempt_ = attempt;
    // A machine may get the same message again on another connection.
    const auto [entry, is_new] = first_ranks_.try_emplace(machine, first);
    require(entry->second == first && (machine == 0) == (first == 0));
    if (entry != first_ranks_.begin()) require(std::prev(entry)->second < first);
    if (const auto next = std::next(entry); next != first_ranks_.end())
      require(first < next->second);
  }

 private:
  CoordinatorSettings settings_;
  std::int64_t attempt_ = -1;
  std::map<std::int64_t, std::int64_t> first_ranks_;  // first rank of each machine in this round
};

void feed_coordinator(Input& input) {
  const std::uint8_t how = input.byte();
  CoordinatorSettings settings{.min_machines = 1 + how % 3,
                               .max_machines = 1 + how % 3 + how / 4 % 3,
                               .max_restarts = how / 16 % 3,
                               .join_timeout = 20,
                               .last_call_timeout = 2,
                               .keep_alive_timeout = 5,
                               .same_program = how >= 128};
  MessageCheck messages(settings);
  Coordinator coordinator(settings, [&](int, const json& message) { messages.check(message); });
  Clock::time_point now{};
  while (!input.empty()) {
    const std::uint8_t what = input.byte();
    const int agent = what % 4;
    now += std::chrono::milliseconds(what / 4 % 4 * 700);
    const bool was_finished = coordinator.finished();
    if (what / 16 % 8 == 7) {
      if (what >= 128)
        coordinator.on_connection_failure(agent);
      else
        coordinator.on_disconnect(agent, "closed", now);
    } else if (what / 16 % 8 == 6) {
      coordinator.tick(now);
    } else {
      json message;
      try {
        message = agent_message(input.line(), agent, settings);
      } catch (const json::exception&) {  // the server closes a connection that does not send JSON
        continue;
      }
      try {
        coordinator.receive(agent, message, "10.0.0.1", what >= 128 ? "127.0.0.1" : "10.0.0.9",
                            now);
      } catch (const DataError& error) {
        require(error.code() == "rendezvous.message");
        require(coordinator.finished() == was_finished);
      }
    }
    require(coordinator.finished() || !was_finished);
  }
}

void feed_addresses(std::string_view bytes) {
  try {
    const Endpoint endpoint = parse_endpoint(bytes, 29500);
    require(!endpoint.host.empty() && endpoint.port >= 0 && endpoint.port <= 65535);
    const Endpoint again = parse_endpoint(to_text(endpoint), 1);
    require(again.host == endpoint.host && again.port == endpoint.port);
  } catch (const ConfigError&) {
  }
  try {
    // Longer inputs need much memory and do not reach more code of the parser.
    for (const std::string& host : expand_slurm_hosts(bytes.substr(0, 100))) require(!host.empty());
  } catch (const ConfigError&) {
  }
  Input input(bytes);
  LaunchOptions options;
  options.nnodes = std::string(input.line());
  options.rdzv_endpoint = std::string(input.line());
  if (const std::string_view address = input.line(); !address.empty())
    options.main_process_ip = std::string(address);
  const std::uint8_t how = input.byte();
  if (how & 1) options.machine_rank = input.byte();
  if (how & 2) options.num_processes = input.byte();
  if (how & 4) options.nproc_per_node = 1 + input.byte() % 8;
  if (how & 8) options.slurm = true;
  if (how & 16) options.main_process_port = input.byte() * 256 + input.byte();
  if (how & 32) options.standalone = true;
  try {
    const Machines machines = resolve_machines(options);
    require(machines.min_count >= 1 && machines.min_count <= machines.max_count &&
            machines.max_count <= 4096);
    require(machines.rank < machines.max_count);
    if (machines.has_several() && !options.slurm)
      require(!machines.host.empty() && machines.port > 0 && machines.port <= 65535);
  } catch (const ConfigError&) {
  }
}

// Builds an environment of launchers' variables from lines. The first byte of a line selects a
// name, and the rest is the value.
void feed_environment(Input& input) {
  static const char* const names[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "GROUP_RANK",
                                      "GROUP_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "OMPI_MCA_orte_num_nodes",
                                      "PMIX_NAMESPACE",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "MV2_COMM_WORLD_RANK",
                                      "MV2_COMM_WORLD_SIZE",
                                      "SLURM_PROCID",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_STEP_ID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_NODEID",
                                      "SLURM_STEP_NUM_NODES",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_JOB_NODELIST",
                                      "SLURM_JOB_ID",
                                      "JOB_COMPLETION_INDEX",
                                      "VC_TASK_INDEX",
                                      "KUBERNETES_SERVICE_HOST",
                                      "TORCHELASTIC_RESTART_COUNT",
                                      "TORCHELASTIC_USE_AGENT_STORE",
                                      "SLURM_RESTART_COUNT"};
  config::Environment environment;
  while (!input.empty()) {
    const char* const name = names[input.byte() % std::size(names)];
    environment[name] = std::string(input.line().substr(0, 100));
  }
  try {
    const Worker worker = worker_of(environment);
    require(worker.rank >= 0 && worker.rank < worker.world_size);
    require(worker.local_rank >= 0 && worker.local_rank < worker.local_world_size);
    require(worker.local_world_size <= worker.world_size);
    require(worker.machine_rank >= 0 && worker.machine_rank < worker.num_machines);
    require(worker.world_size == 1 ||
            (!worker.master_addr.empty() && worker.master_port > 0 && worker.master_port <= 65535));
  } catch (const ConfigError& error) {
    require(error.code() == "launch.environment");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Input input(bytes);
  switch (data[0] % 4) {
    case 0:
      feed_store(input);
      break;
    case 1:
      feed_coordinator(input);
      break;
    case 2:
      feed_addresses(bytes);
      break;
    default:
      feed_environment(input);
  }
  return 0;
}
