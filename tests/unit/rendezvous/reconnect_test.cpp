// A launcher closes or loses its connection, and the other launcher gets the right messages.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"
#include "unit/code_of.h"

namespace rendezvous_reconnect_test {

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;

const std::string kToken = "a token of this test 0123456789";

struct Launcher {
  SecureContext context{Side::client, kToken};
  std::optional<Connection> connection;
  std::string name;

  Launcher(const JobServer& server, int rank) : name("launcher " + std::to_string(rank)) {
    connect(server);
    send({{"kind", "join"},
          {"protocol", kProtocol},
          {"agent", name},
          {"machine_rank", rank},
          {"min_machines", 2},
          {"max_machines", 2},
          {"port", 1000},
          {"hosts_coordinator", rank == 0}});
  }
  void connect(const JobServer& server) {
    connection.emplace(connect_to({.host = "127.0.0.1", .port = server.port()}, 5).socket, context);
    connection->send("agent");
  }
  void send(const json& message) {
    connection->send(message.dump());
    connection->flush(Clock::now() + 10s);
  }
  // The kind of the next message, without keep-alives, or an empty text if none comes in this time.
  std::string receive_kind(Clock::duration longest) {
    const auto deadline = Clock::now() + longest;
    while (true) {
      std::string kind;
      const std::string code = code_of(
          [&] { kind = json::parse(connection->receive(deadline, "a message")).at("kind"); });
      if (code != "none") return "";
      if (kind != "alive" && kind != "waiting") return kind;
    }
  }
  // Resets the connection, like a firewall that has lost its table of connections.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(connection->descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    connection.reset();
  }
};

TEST_CASE("reconnect: a failed connection costs nothing if the launcher returns") {
  JobServer server(
      {.token = kToken, .coordinator = CoordinatorSettings{.min_machines = 2, .max_machines = 2}});
  Launcher first(server, 0), second(server, 1);
  REQUIRE(first.receive_kind(10s) == "round");
  REQUIRE(second.receive_kind(10s) == "round");
  second.reset();
  CHECK(first.receive_kind(1500ms) == "");
  second.connect(server);
  second.send({{"kind", "rejoin"}, {"agent", second.name}, {"attempt", 0}});
  first.send({{"kind", "ended"}, {"attempt", 0}});
  second.send({{"kind", "ended"}, {"attempt", 0}});
  CHECK(first.receive_kind(10s) == "finish");
  CHECK(second.receive_kind(10s) == "finish");
}

TEST_CASE("reconnect: a launcher that ends is lost at once") {
  JobServer server(
      {.token = kToken, .coordinator = CoordinatorSettings{.min_machines = 2, .max_machines = 2}});
  Launcher first(server, 0), second(server, 1);
  REQUIRE(first.receive_kind(10s) == "round");
  REQUIRE(second.receive_kind(10s) == "round");
  second.connection.reset();
  CHECK(first.receive_kind(10s) == "stop");
}

TEST_CASE("reconnect: a launcher that gives up a silent connection is not lost by closing it") {
  JobServer server(
      {.token = kToken, .coordinator = CoordinatorSettings{.min_machines = 2, .max_machines = 2}});
  Launcher first(server, 0), second(server, 1);
  REQUIRE(first.receive_kind(10s) == "round");
  REQUIRE(second.receive_kind(10s) == "round");
  second.send({{"kind", "reconnecting"}});
  second.connection.reset();
  CHECK(first.receive_kind(1500ms) == "");
  second.connect(server);
  second.send({{"kind", "rejoin"}, {"agent", second.name}, {"attempt", 0}});
  second.send({{"kind", "failed"}, {"attempt", 0}, {"code", 3}});
  CHECK(first.receive_kind(10s) == "stop");
}

}  // namespace

}  // namespace rendezvous_reconnect_test
