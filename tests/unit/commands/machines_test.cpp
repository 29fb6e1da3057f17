// Options for several machines: where they meet, how many there are, and contradictions.
#include "hasten/options/launch_options.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "machine/endpoint.h"
#include "machine/token.h"
#include "unit/code_of.h"

namespace commands_machines_test {

using namespace hasten;

namespace {

TEST_CASE("machines: an endpoint has a host and a port") {
  CHECK(to_text(parse_endpoint("10.0.0.1:5", 1)) == "10.0.0.1:5");
  CHECK(to_text(parse_endpoint("host", 29500)) == "host:29500");
  CHECK(to_text(parse_endpoint("[::1]:7", 1)) == "[::1]:7");
  CHECK(to_text(parse_endpoint("fe80::1", 9)) == "[fe80::1]:9");
  for (const char* wrong :
       {"", ":1", "a:", "a:b", "a:70000", "[::1", "[::1]7", "[::1]:", "a b:1", "u@h:1", "a:-1"})
    CHECK_MESSAGE(code_of([&] { parse_endpoint(wrong, 1); }) == "config.endpoint", wrong);
}

TEST_CASE("token: short, long and spaced tokens are refused") {
  check_token("0123456789abcdef", "a test");
  for (const std::string& wrong :
       {std::string("short"), std::string("with spaces in it, long"), std::string(2000, 'a')})
    CHECK(code_of([&] { check_token(wrong, "a test"); }) == "config.token");
}

TEST_CASE("machines: a single machine needs no address") {
  CHECK_FALSE(resolve_machines({}).has_several());
  CHECK(resolve_machines({}).port == 0);
  const Machines named = resolve_machines({.num_machines = 1,
                                           .machine_rank = 0,
                                           .main_process_ip = "10.0.0.1",
                                           .main_process_port = 0});
  CHECK(named.host.empty());
}

TEST_CASE("machines: static machines have fixed ranks") {
  const Machines machines = resolve_machines(
      {.num_processes = 8, .num_machines = 4, .machine_rank = 3, .main_process_ip = "n0"});
  CHECK(machines.min_count == 4);
  CHECK(machines.max_count == 4);
  CHECK(machines.rank == 3);
  CHECK(machines.host == "n0");
  CHECK(machines.port == kRendezvousPort);
}

TEST_CASE("machines: a rendezvous at an endpoint assigns ranks and accepts a range of machines") {
  const Machines machines =
      resolve_machines({.nproc_per_node = 2, .nnodes = "2:4", .rdzv_endpoint = "n0:5000"});
  CHECK(machines.min_count == 2);
  CHECK(machines.max_count == 4);
  CHECK(machines.rank == -1);
  CHECK(machines.port == 5000);
  CHECK(resolve_machines(
            {.num_machines = 2, .main_process_ip = "n0", .rdzv_backend = RendezvousBackend::c10d})
            .rank == -1);
  CHECK(resolve_machines({.nnodes = "3", .rdzv_endpoint = "n0"}).port == kRendezvousPort);
}

TEST_CASE("machines: contradictory and missing options are refused") {
  const std::vector<std::pair<std::string, LaunchOptions>> wrong = {
      {"config.missing", {.num_machines = 2}},
      {"config.missing", {.num_machines = 2, .machine_rank = 0}},
      {"config.missing", {.num_machines = 2, .main_process_ip = "n0"}},
      {"config.missing",
       {.num_machines = 2, .machine_rank = 0, .main_process_ip = "n0", .main_process_port = 0}},
      {"config.contradiction", {.num_machines = 2, .machine_rank = 2, .main_process_ip = "n0"}},
      {"config.contradiction", {.machine_rank = 1}},
      {"config.contradiction", {.num_machines = 2, .nnodes = "3", .rdzv_endpoint = "n0"}},
      {"config.contradiction", {.num_machines = 4, .nnodes = "2:4", .rdzv_endpoint = "n0"}},
      {"config.contradiction",
       {.num_processes = 3, .num_machines = 2, .machine_rank = 0, .main_process_ip = "n0"}},
      {"config.contradiction", {.num_processes = 8, .nnodes = "2:4", .rdzv_endpoint = "n0"}},
      {"config.contradiction",
       {.num_processes = 8, .nproc_per_node = 3, .nnodes = "2", .rdzv_endpoint = "n0"}},
      {"config.contradiction", {.nnodes = "2:4", .machine_rank = 1, .rdzv_endpoint = "n0"}},
      {"config.contradiction",
       {.nnodes = "2:4", .main_process_ip = "n0", .rdzv_backend = RendezvousBackend::static_}},
      {"config.contradiction", {.nnodes = "2", .main_process_ip = "n1", .rdzv_endpoint = "n0"}},
      {"config.contradiction", {.nnodes = "2", .main_process_port = 7, .rdzv_endpoint = "n0:8"}},
      {"config.endpoint", {.nnodes = "2", .rdzv_endpoint = "n0:http"}},
      {"config.bad-value", {.nnodes = "4:2", .rdzv_endpoint = "n0"}},
      {"config.bad-value", {.nnodes = "0", .rdzv_endpoint = "n0"}},
      {"config.bad-value", {.nnodes = "two", .rdzv_endpoint = "n0"}},
      {"config.bad-value", {.nnodes = "1:2:3", .rdzv_endpoint = "n0"}},
      {"config.bad-value", {.nnodes = ":", .rdzv_endpoint = "n0"}},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    CAPTURE(i);
    CHECK(code_of([&] { resolve_machines(wrong[i].second); }) == wrong[i].first);
  }
}

}  // namespace

}  // namespace commands_machines_test
