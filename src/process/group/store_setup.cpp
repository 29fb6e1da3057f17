#include "process/group/store_setup.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <tuple>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/job.h"
#include "machine/token.h"
#include "options/value.h"
#include "options/variable_of.h"
#include "process/consensus/job_store.h"
#include "rendezvous/job_server.h"

namespace hasten {
namespace {

// The servers that this process, as rank 0, runs for all groups that it forms. They live until the
// process ends, because another rank may form its next group before rank 0 has left its last one.
// The keys begin with the number of the process: a fork has the entries of its parent, but not the
// threads of the servers.
struct Servers {
  // The keys also have the port, whether the server is for this machine only, and the token.
  using Key = std::tuple<pid_t, int, bool, std::string>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<rendezvous::JobServer>> with_token;
  // Stores by their ports. c10d's server ends with the last store that uses it.
  std::map<std::tuple<pid_t, int>, c10::intrusive_ptr<c10d::Store>> without_token;
};

Servers& servers() {
  static Servers& all = *new Servers;  // never destroyed, because a fork could not join the threads
  return all;
}

void end_own_servers() {
  const auto is_own = [](const auto& entry) { return std::get<0>(entry.first) == getpid(); };
  Servers& all = servers();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::erase_if(all.with_token, is_own);
  std::erase_if(all.without_token, is_own);
}

// Ends the servers when the process exits. Call it when the first server of a kind exists: the
// object is then destroyed before OpenSSL frees what servers with a token use.
template <bool with_token>
void end_servers_at_exit() {
  struct End {
    ~End() { end_own_servers(); }
  };
  static const End end{};
}

std::shared_ptr<rendezvous::JobServer> server_at(const Endpoint& at, const std::string& token) {
  const bool loopback_only = rendezvous::is_loopback(at.host);
  Servers& all = servers();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& server = all.with_token[Servers::Key(getpid(), at.port, loopback_only, token)];
  if (!server) {
    server = std::make_shared<rendezvous::JobServer>(
        rendezvous::ServerOptions{.loopback_only = loopback_only, .port = at.port, .token = token});
    end_servers_at_exit</*with_token=*/true>();
  }
  return server;
}

void keep_server_of(const c10::intrusive_ptr<c10d::Store>& store, int port) {
  Servers& all = servers();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.without_token.try_emplace(std::tuple(getpid(), port), store);
  end_servers_at_exit</*with_token=*/false>();
}

c10::intrusive_ptr<c10d::Store> tcp_store(const Worker& worker, const std::string& prefix,
                                          std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(worker.master_port);
  options.isServer = worker.rank == 0 && !worker.store_is_served;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.multiTenant = true;  // All groups of a process use one server.
  const auto store = c10::make_intrusive<c10d::TCPStore>(worker.master_addr, options);
  if (options.isServer) keep_server_of(store, worker.master_port);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

// Returns the prefix of the next group's keys. Every process forms the groups of a job in the same
// order, so their numbers agree.
std::string next_prefix(const Worker& worker) {
  static std::atomic<std::int64_t> groups = 0;
  return str("attempt ", worker.attempt, "/group ", groups++, "/");
}

// Returns the program's choice, or else the value of HASTEN_ENCRYPT, or else nothing.
std::optional<bool> requested_encryption(std::optional<bool> by_program,
                                         const config::Environment& environment) {
  const std::string variable = config::variable_of(environment, "HASTEN_ENCRYPT");
  if (by_program || variable.empty()) return by_program;
  if (const auto value = config::parse_bool(variable)) return value;
  throw ConfigError("process.encryption",
                    {.what = "HASTEN_ENCRYPT", .got = variable, .expected = "true or false"});
}

void check_encryption(bool is_requested, const std::string& token) {
  if (is_requested && token.empty()) {
    throw ConfigError("process.encryption",
                      {.what = "encryption between the ranks",
                       .got = "no job token",
                       .hint = "start the ranks with hasten launch, or set HASTEN_JOB_TOKEN to the "
                               "same secret on all of them, such as the output of: openssl rand "
                               "-hex 32"});
  }
}

}  // namespace

StoreSetup set_up_store(const Worker& worker, const config::Environment& environment,
                        std::chrono::milliseconds timeout, std::optional<bool> encrypt) {
  const std::string store_address = config::variable_of(environment, kStoreVariable);
  const std::string token = config::variable_of(environment, kTokenVariable);
  const std::string prefix = next_prefix(worker);
  StoreSetup setup;
  setup.token = token;
  const auto requested = requested_encryption(encrypt, environment);
  check_encryption(requested.value_or(false), token);
  setup.encrypt = requested.value_or(!token.empty());
  setup.must_encrypt = requested.value_or(false) && worker.num_machines > 1;
  Endpoint at{.host = worker.master_addr, .port = worker.master_port};
  if (!store_address.empty()) at = parse_endpoint(store_address, 0);
  if (token.empty()) {
    setup.store = tcp_store(worker, prefix, timeout);
  } else {
    check_token(token, kTokenVariable);
    if (store_address.empty() && worker.rank == 0) setup.server = server_at(at, token);
    setup.store = c10::make_intrusive<JobStore>(at, token, prefix, timeout);
  }
  setup.own_address = worker.num_machines == 1 ? "127.0.0.1" : rendezvous::address_on_route_to(at);
  return setup;
}

}  // namespace hasten
