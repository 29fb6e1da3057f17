// Simulates thousands of ranks that join a job: the job's server is real, and processes simulate
// the machines and ranks. There are no tensors: the ranks send the store the requests that form a
// group.
//
//   rendezvous_scale RANKS MACHINES LONGEST [EXCHANGES]
//
// In an exchange, each rank publishes a text that every other rank reads, such as its address.
// Prints the cost of the server's process, and fails if a rank was refused or the server computed
// for longer than LONGEST seconds.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/seconds.h"
#include "hasten/base/error.h"
#include "processor_time.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

const std::string kToken = "the token of a very large job";
constexpr int kRanksPerProcess = 50;

struct Size {
  int ranks = 0, machines = 0, exchanges = 0;
};

// The result of one process's ranks and launchers. It is small enough for one atomic write to a
// pipe.
struct Outcome {
  int met = 0, failed = 0, launchers = 0;
  double longest_silence = 0;  // the coordinator's, in seconds
  char problem[128] = "";
};

// The launchers of some machines, in one thread. They join, and send messages until the end.
class Launchers {
 public:
  Launchers(const Endpoint& server, int first, int count, int machines) {
    for (int machine = first; machine < first + count; ++machine) join(server, machine, machines);
    thread_ = std::thread([this] { exchange_messages(); });
  }
  ~Launchers() {
    is_stopping_ = true;
    thread_.join();
  }
  bool all_have_begun() const { return rounds_ == static_cast<int>(launchers_.size()); }
  int rounds() const { return rounds_; }
  double longest_silence() const { return longest_silence_; }

 private:
  struct Launcher {
    std::unique_ptr<Connection> connection;
    Clock::time_point last_received = Clock::now(), last_sent = Clock::now();
  };

  void join(const Endpoint& server, int machine, int machines) {
    Launcher launcher;
    while (!launcher.connection || !launcher.connection->is_authenticated()) {
      launcher.connection = std::make_unique<Connection>(connect_to(server, 20).socket, context_);
      launcher.connection->send(kAgentGreeting);
      launcher.connection->flush(Clock::now() + 30s);
    }
    launcher.connection->send(nlohmann::json{
        {"kind", "join"},
        {"protocol", kProtocol},
        {"agent", std::to_string(machine)},
        {"host", "node" + std::to_string(machine)},
        {"machine_rank", machine},
        {"processes", 4},
        {"min_machines", machines},
        {"max_machines", machines},
        {"port", 29501},
        {"hosts_coordinator",
         machine == 0}}.dump());
    launcher.last_received = Clock::now();
    launchers_.push_back(std::move(launcher));
  }

  void exchange_messages() {
    while (!is_stopping_) {
      for (Launcher& launcher : launchers_) receive_messages(launcher);
      std::this_thread::sleep_for(20ms);
    }
  }

  void receive_messages(Launcher& launcher) {
    launcher.connection->advance();
    while (const auto message = launcher.connection->next()) {
      longest_silence_ = std::max(longest_silence_.load(), seconds_since(launcher.last_received));
      launcher.last_received = Clock::now();
      if (nlohmann::json::parse(*message).at("kind") == "round") ++rounds_;
    }
    if (seconds_since(launcher.last_sent) < 1) return;
    launcher.last_sent = Clock::now();
    launcher.connection->send(R"({"kind": "alive"})");
  }

  SecureContext context_{Side::client, kToken};
  std::vector<Launcher> launchers_;
  std::atomic<int> rounds_ = 0;
  std::atomic<double> longest_silence_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

std::string key(const std::string& name) { return "attempt 0/group 0/" + name; }

// Sends the requests that form a group: each rank arrives, publishes its abilities, and opens a
// second connection for its watchdog.
void form_group(const Endpoint& server, int rank, const Size& size) {
  StoreClient store(server, kToken, 10min);
  store.set(key("arrival/location/" + std::to_string(rank)),
            R"({"host": "node17.cluster.example", "pids": "4026531836", "process": 123456})");
  if (store.add(key("arrival/count"), 1) == size.ranks) store.set(key("arrival/complete"), "yes");
  store.wait({key("arrival/complete")}, 10min);
  for (const std::string prefix : {"shared_memory", "nccl"}) {
    if (store.add(key(prefix + "/answers"), 1) == size.ranks)
      store.set(key(prefix + "/result"), "yes");
    store.get({key(prefix + "/result")}, 10min);
  }
  for (int exchange = 0; exchange < size.exchanges; ++exchange) {
    const std::string prefix = key("mesh/" + std::to_string(exchange) + "/");
    std::vector<std::string> keys;
    for (int each = 0; each < size.ranks; ++each) keys.push_back(prefix + std::to_string(each));
    store.set(keys[static_cast<std::size_t>(rank)],
              R"({"address": "10.0.17.123", "local": "hasten 0123456789abcdef", "port": 41234})");
    store.get(keys, 10min);
  }
  StoreClient watchdog(server, kToken, 10min);
  watchdog.check({key("watchdog/asked")});
}

void record_failure(Outcome& outcome, const std::string& problem) {
  ++outcome.failed;
  problem.copy(outcome.problem, sizeof outcome.problem - 1);
}

Outcome simulate_ranks(const Endpoint& server, int process, int processes, const Size& size) {
  const auto share = [&](int all, int of) {
    return static_cast<int>(std::int64_t{all} * of / processes);
  };
  const int machine = share(size.machines, process);
  Launchers launchers(server, machine, share(size.machines, process + 1) - machine, size.machines);
  while (!launchers.all_have_begun()) std::this_thread::sleep_for(5ms);
  Outcome outcome;
  std::mutex mutex;
  std::vector<std::thread> ranks;
  for (int rank = share(size.ranks, process); rank < share(size.ranks, process + 1); ++rank) {
    ranks.emplace_back([&, rank] {
      std::string problem;
      try {
        form_group(server, rank, size);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      const std::lock_guard<std::mutex> lock(mutex);
      if (problem.empty()) {
        ++outcome.met;
      } else {
        record_failure(outcome, problem);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  outcome.launchers = launchers.rounds();
  outcome.longest_silence = launchers.longest_silence();
  return outcome;
}

struct Pipe {
  std::array<int, 2> ends{};
  Pipe() {
    if (pipe(ends.data()) != 0) std::exit(1);
  }
};

// Returns the ids of processes that read the server's port and write their outcome.
std::vector<pid_t> start_processes(int count, const Pipe& port, const Pipe& outcomes,
                                   const Size& size) {
  std::vector<pid_t> ids;
  for (int process = 0; process < count; ++process) {
    ids.push_back(fork());
    if (ids.back() != 0) continue;
    int number = 0;
    if (read(port.ends[0], &number, sizeof number) != sizeof number) _exit(1);
    const Outcome outcome =
        simulate_ranks({.host = "127.0.0.1", .port = number}, process, count, size);
    _exit(write(outcomes.ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
  }
  return ids;
}

Outcome sum_of(const Pipe& outcomes, int count) {
  Outcome all;
  for (int process = 0; process < count; ++process) {
    Outcome one;
    if (read(outcomes.ends[0], &one, sizeof one) != sizeof one) break;
    all.met += one.met;
    all.failed += one.failed;
    all.launchers += one.launchers;
    all.longest_silence = std::max(all.longest_silence, one.longest_silence);
    if (one.failed > 0) std::copy_n(one.problem, sizeof one.problem, all.problem);
  }
  return all;
}

// Allows enough open files: each rank has two connections, and each launcher has one.
bool allow_files(const Size& size) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto wanted = static_cast<rlim_t>(2 * size.ranks + size.machines + 400);
  limit.rlim_cur = std::max(limit.rlim_cur, wanted);
  return limit.rlim_cur <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int run(const Size& size, double longest) {
  if (!allow_files(size)) {
    std::printf("skipped: this user may not open %d files\n", 2 * size.ranks + size.machines);
    return 0;
  }
  const int processes = std::max(1, size.ranks / kRanksPerProcess);
  const Pipe port, outcomes;
  const std::vector<pid_t> ids =
      start_processes(processes, port, outcomes, size);  // no threads yet
  const auto began = Clock::now();
  JobServer server({.token = kToken,
                    .coordinator = CoordinatorSettings{.min_machines = size.machines,
                                                       .max_machines = size.machines}});
  const int number = server.port();
  for (int process = 0; process < processes; ++process) {
    if (write(port.ends[1], &number, sizeof number) != sizeof number) return 1;
  }
  close(outcomes.ends[1]);
  const Outcome all = sum_of(outcomes, processes);
  const double computed = processor_seconds();
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::printf(
      "%d ranks on %d machines: %d have met, %d launchers have started; the server has computed "
      "%.2f s in %.2f s and held %.0f MB; the coordinator was silent for up to %.2f s\n",
      size.ranks, size.machines, all.met, all.launchers, computed, seconds_since(began),
      static_cast<double>(use.ru_maxrss) / 1024, all.longest_silence);
  if (all.failed > 0) std::printf("%d have failed: %s\n", all.failed, all.problem);
  for (const pid_t id : ids) waitpid(id, nullptr, 0);
  return all.met == size.ranks && all.launchers == size.machines && computed < longest ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5)
    return std::fputs("rendezvous_scale RANKS MACHINES LONGEST [EXCHANGES]\n", stderr), 2;
  const Size size{.ranks = std::atoi(argv[1]),
                  .machines = std::atoi(argv[2]),
                  .exchanges = argc == 5 ? std::atoi(argv[4]) : 0};
  return run(size, std::atof(argv[3]));
}
