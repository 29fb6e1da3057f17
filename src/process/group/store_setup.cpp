#include "process/group/store_setup.h"

#include <atomic>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

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

c10::intrusive_ptr<c10d::Store> tcp_store(const Worker& worker, const std::string& prefix,
                                          std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(worker.master_port);
  options.isServer = worker.rank == 0 && !worker.store_is_served;
  options.waitWorkers = false;
  options.timeout = timeout;
  const auto store = c10::make_intrusive<c10d::TCPStore>(worker.master_addr, options);
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
    if (store_address.empty() && worker.rank == 0) {
      setup.server = std::make_shared<rendezvous::JobServer>(rendezvous::ServerOptions{
          .loopback_only = rendezvous::is_loopback(at.host), .port = at.port, .token = token});
    }
    setup.store = c10::make_intrusive<JobStore>(at, token, prefix, timeout);
  }
  setup.own_address = worker.num_machines == 1 ? "127.0.0.1" : rendezvous::address_on_route_to(at);
  return setup;
}

}  // namespace hasten
