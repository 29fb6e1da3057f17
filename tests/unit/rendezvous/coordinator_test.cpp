// Machines that join, leave, fail and send wrong messages, with a simulated clock.
#include "rendezvous/coordinator.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "unit/code_of.h"

namespace rendezvous_coordinator_test {

namespace {

using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;

std::string str_of(int number) { return std::to_string(number); }

struct Job {
  CoordinatorSettings settings;
  std::map<int, std::vector<json>> sent;
  Clock::time_point now{};
  int rounds = 0;
  int silent = 0;  // an agent without messages
  Coordinator coordinator{settings,
                          [this](int id, const json& message) { sent[id].push_back(message); },
                          [this] { ++rounds; }};

  explicit Job(CoordinatorSettings wish) : settings(wish) {}

  void join(int id, json more = {}, const std::string& address = "") {
    json message = {{"kind", "join"},
                    {"protocol", kProtocol},
                    {"agent", "launcher " + std::to_string(id)},
                    {"host", "node" + std::to_string(id)},
                    {"program", "p"},
                    {"processes", 2},
                    {"num_processes", 0},
                    {"min_machines", settings.min_machines},
                    {"max_machines", settings.max_machines},
                    {"port", 1000 + id}};
    if (!more.is_null()) message.update(more);
    coordinator.receive(id, message, address.empty() ? "10.0.0." + std::to_string(id) : address,
                        "10.0.0.9", now);
  }
  void send(int id, json message) { coordinator.receive(id, message, "", "", now); }
  void advance(double seconds) {
    const int steps = static_cast<int>(seconds * 2);
    for (int i = 0; i < steps; ++i) {
      now += 500ms;
      for (const auto& [id, messages] : sent) {
        if (id != silent) coordinator.receive(id, {{"kind", "alive"}}, "", "", now);
      }
      coordinator.tick(now);
    }
  }
  std::string last(int id) {
    for (auto message = sent[id].rbegin(); message != sent[id].rend(); ++message) {
      if ((*message)["kind"] != "alive") return (*message)["kind"];
    }
    return "";
  }
  json last_of(int id, const std::string& kind) {
    for (auto message = sent[id].rbegin(); message != sent[id].rend(); ++message) {
      if ((*message)["kind"] == kind) return *message;
    }
    return {};
  }
};

TEST_CASE("coordinator: a fixed number of machines starts in order of rank") {
  Job job({.min_machines = 3, .max_machines = 3});
  job.join(7, {{"machine_rank", 2}, {"run_id", "another"}});
  job.join(8, {{"machine_rank", 0}, {"serves", true}, {"run_id", "the name"}}, "127.0.0.1");
  job.advance(2);
  CHECK(job.last(7) == "waiting");
  const std::string host = job.last_of(8, "waiting")["text"],
                    other = job.last_of(7, "waiting")["text"];
  CHECK(host.find("2 of 3 machines are present: node7 (10.0.0.7), node8 (10.0.0.9); missing: "
                  "machine_rank 1; 59") == 0);
  CHECK(other.find("2 of 3 machines are present; 59") == 0);
  job.join(9, {{"machine_rank", 1}});
  CHECK(job.rounds == 1);
  const json first = job.last_of(8, "round"), third = job.last_of(7, "round");
  CHECK(first["first_rank"] == 0);
  CHECK(third["machine_rank"] == 2);
  CHECK(third["first_rank"] == 4);
  CHECK(third["world_size"] == 6);
  CHECK(third["attempt"] == 0);
  CHECK(third["run_id"] == "the name");
  CHECK(first["run_id"] == "the name");
  // Its own address is loopback: the others reach it at 10.0.0.9.
  CHECK(third["master_addr"] == "10.0.0.9");
  CHECK(third["master_port"] == 1008);
  for (const int id : {7, 8, 9}) job.send(id, {{"kind", "ended"}});
  for (const int id : {7, 8, 9}) CHECK(job.last_of(id, "finish")["code"] == 0);
  for (const int id : {7, 8, 9}) job.coordinator.on_disconnect(id, "", job.now);
  CHECK(job.coordinator.all_disconnected());
}

TEST_CASE("coordinator: a failure stops all machines, and all restart as often as allowed") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
  job.join(1);
  job.join(2);
  job.send(1, {{"kind", "failed"}, {"code", 7}, {"reason", "rank 0 failed"}});
  CHECK(job.last_of(2, "stop")["reason"] == "rank 0 failed");
  job.send(2, {{"kind", "failed"}, {"code", 9}, {"reason", "of that"}});
  job.join(1);
  CHECK(job.rounds == 1);
  job.join(2);
  CHECK(job.rounds == 2);
  CHECK(job.last_of(2, "round")["attempt"] == 1);
  job.send(2, {{"kind", "failed"}, {"code", 3}, {"reason", "again"}});
  CHECK(job.last(1) == "stop");
  job.join(1);
  job.join(2);
  CHECK(job.last_of(1, "finish")["code"] == 3);
  CHECK(job.last_of(2, "finish")["reason"] == "again");
}

TEST_CASE("coordinator: a machine that has ended restarts when another fails") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
  job.join(1);
  job.join(2);
  job.send(1, {{"kind", "ended"}});
  job.send(2, {{"kind", "failed"}, {"code", 3}});
  CHECK(job.last(1) == "stop");
  job.join(1);
  job.join(2);
  CHECK(job.rounds == 2);
}

TEST_CASE("coordinator: an elastic job waits for more, starts with enough, admits later ones") {
  Job job({.min_machines = 2, .max_machines = 4, .last_call_timeout = 10});
  job.join(1);
  job.join(2);
  job.advance(9);
  CHECK(job.rounds == 0);
  job.advance(2);
  CHECK(job.rounds == 1);
  CHECK(job.last_of(1, "round")["world_size"] == 4);
  job.join(3);
  job.advance(9);
  CHECK(job.last(1) == "round");  // it may end right after it joined
  job.advance(2);
  CHECK(job.last_of(1, "stop")["reason"] == "node3 has joined");
  job.join(2);
  job.join(1);
  CHECK(job.rounds == 2);
  CHECK(job.last_of(1, "round")["machine_rank"] == 0);  // as before
  CHECK(job.last_of(3, "round")["machine_rank"] == 2);
  CHECK(job.last_of(3, "round")["world_size"] == 6);
  // One machine is lost: the others continue if a restart is left; here none is.
  job.coordinator.on_disconnect(2, "closed", job.now);
  CHECK(std::string(job.last_of(1, "stop")["reason"])
            .find("machine 1 (node2, 10.0.0.2) is lost: closed") == 0);
  job.join(1);
  CHECK(job.last_of(1, "finish")["code"] == 1);
}

TEST_CASE("coordinator: a silent machine is lost, and the others continue without it") {
  Job job({.min_machines = 2,
           .max_machines = 3,
           .max_restarts = 1,
           .last_call_timeout = 0,
           .keep_alive_timeout = 5});
  job.join(1);
  job.join(2);
  job.join(3);
  job.join(1);
  job.join(2);
  CHECK(job.last_of(3, "round")["num_machines"] == 3);
  job.silent = 3;
  job.advance(6);
  CHECK(std::string(job.last_of(1, "stop")["reason"]).find("no message for 5.0 s") !=
        std::string::npos);
  job.join(1);
  job.join(2);
  CHECK(job.last_of(2, "round")["num_machines"] == 2);
}

TEST_CASE("coordinator: a machine that leaves an elastic job by a signal costs no restart") {
  Job job({.min_machines = 1, .max_machines = 2});
  job.join(1);
  job.join(2);
  job.send(2, {{"kind", "leaving"}, {"signal", 15}});
  CHECK(job.last(1) == "stop");
  job.join(1);
  CHECK(job.last_of(1, "round")["num_machines"] == 1);
}

TEST_CASE("coordinator: below the minimum an elastic job gathers again, until its wait is over") {
  Job job({.min_machines = 2, .max_machines = 4, .join_timeout = 60, .last_call_timeout = 0});
  job.join(1);
  job.join(2);
  REQUIRE(job.rounds == 1);
  job.send(2, {{"kind", "leaving"}, {"signal", 15}});
  CHECK(job.last_of(1, "stop")["after_failure"] == false);
  job.join(1);
  job.advance(59);
  CHECK(job.last(1) == "waiting");
  job.join(3);
  CHECK(job.last_of(3, "round")["attempt"] == 1);
  job.send(3, {{"kind", "leaving"}, {"signal", 15}});
  job.join(1);
  job.advance(61);
  CHECK(job.last_of(1, "finish")["code"] == 1);
}

TEST_CASE("coordinator: leaving a fixed job by a signal uses a restart or ends the job") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
  job.join(1, {{"serves", true}});
  job.join(2);
  job.send(2, {{"kind", "leaving"}, {"signal", 15}});
  job.join(1);
  CHECK_FALSE(job.coordinator.finished());
  job.join(3);
  CHECK(job.last_of(3, "round")["attempt"] == 1);
  job.send(3, {{"kind", "leaving"}, {"signal", 15}});
  job.join(1);
  CHECK(job.last_of(1, "finish")["code"] == 143);
}

TEST_CASE("coordinator: the machine that hosts the rendezvous ends the job by leaving") {
  Job job({.min_machines = 1, .max_machines = 3, .max_restarts = 5, .last_call_timeout = 0});
  job.join(1, {{"serves", true}});
  job.join(2);
  job.join(1, {{"serves", true}});
  REQUIRE(job.last_of(2, "round")["num_machines"] == 2);
  job.send(1, {{"kind", "leaving"}, {"signal", 15}});
  job.join(2);
  CHECK(job.last_of(2, "finish")["code"] == 143);
}

TEST_CASE("coordinator: the loss of the rendezvous host ends the job in any state") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 5});
  job.join(1, {{"serves", true}}, "127.0.0.1");
  SUBCASE("while all run") { job.join(2); }
  SUBCASE("after its ranks could not start") {
    job.join(2);
    job.send(1, {{"kind", "failed"}, {"code", 4}, {"reason", "no space"}});
    CHECK(job.last_of(2, "stop")["reason"] == "no space");
  }
  SUBCASE("while machines gather") {}
  SUBCASE("while it leaves") {
    job.join(2);
    job.send(1, {{"kind", "gone"}});
  }
  job.coordinator.on_disconnect(1, "closed", job.now);
  CHECK(job.coordinator.finished());
  job.join(2);
  CHECK(job.last_of(2, "finish")["code"] == 1);
  job.send(2, {{"kind", "gone"}});
  CHECK(job.coordinator.all_disconnected());
}

TEST_CASE("coordinator: a machine without ranks that leaves changes nothing") {
  Job gathers({.min_machines = 2, .max_machines = 2, .join_timeout = 60});
  gathers.join(1, {{"serves", true}});
  gathers.join(2, {{"min_machines", 7}});  // refused, so that it has no ranks
  gathers.send(2, {{"kind", "leaving"}, {"signal", 15}});
  Job waits({.min_machines = 3, .max_machines = 4});
  waits.join(1, {{"serves", true}});
  waits.join(2);
  waits.send(2, {{"kind", "leaving"}, {"signal", 15}});
  CHECK_FALSE(waits.coordinator.finished());
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 3});
  for (const int id : {1, 2, 3}) job.join(id);
  job.send(3, {{"kind", "leaving"}, {"signal", 15}});
  job.advance(2);
  CHECK(job.last(1) == "round");
  CHECK(job.rounds == 1);
}

TEST_CASE("coordinator: a machine whose ranks have all ended well is complete") {
  Job job({.min_machines = 1, .max_machines = 2});
  job.join(1, {{"serves", true}});
  job.join(2);
  job.send(2, {{"kind", "ended"}});
  job.coordinator.on_disconnect(2, "closed", job.now);
  job.join(3);  // no restart for it: the job is about to end
  job.advance(40);
  CHECK(job.last(1) == "round");
  job.send(1, {{"kind", "ended"}});
  CHECK(job.last_of(1, "finish")["code"] == 0);
}

TEST_CASE("coordinator: unstable launchers restart the others less and less often") {
  Job job({.min_machines = 1, .max_machines = 2, .join_timeout = 600, .last_call_timeout = 10});
  job.join(1, {{"serves", true}});
  job.advance(11);
  REQUIRE(job.rounds == 1);
  for (int id = 100; id < 200; ++id) {  // each lives for 5 s
    job.join(id, {{"host", "broken"}});
    job.silent = id;
    job.advance(5);
    job.coordinator.on_disconnect(id, "closed", job.now);
  }
  CHECK(job.rounds == 1);
  int restarts = 0;
  for (int id = 200; id < 260; ++id) {  // each lives until it is admitted, at most a minute
    job.join(id, {{"host", "broken"}});
    const auto stops = [&] { return job.last(1) == "stop"; };
    for (int second = 0; second < 60 && !stops(); ++second) job.advance(1);
    restarts += stops();
    job.coordinator.on_disconnect(id, "closed", job.now);
    if (stops()) job.join(1);
  }
  CHECK(restarts >= 2);
  CHECK(restarts <= 10);  // in an hour: after 10, 20 and 40 s, and again 20 minutes later
}

TEST_CASE("coordinator: an agent returns with another connection, and its ranks continue") {
  Job job({.min_machines = 2, .max_machines = 2, .keep_alive_timeout = 30});
  job.join(1, {{"serves", true}});
  job.join(2);
  const json back = {{"kind", "rejoin"}, {"agent", "launcher 2"}, {"attempt", 0}};
  SUBCASE("its connection has failed") { job.coordinator.on_connection_failure(2); }
  SUBCASE("it has given up a silent connection") {
    job.send(2, {{"kind", "reconnecting"}});
    job.coordinator.on_disconnect(2, "closed", job.now);
  }
  SUBCASE("the old connection is still open") {}
  job.silent = 2;
  job.advance(20);
  job.sent[12];
  job.send(12, back);
  job.coordinator.on_disconnect(2, "closed", job.now);  // the old connection
  job.advance(20);
  CHECK(job.last(1) == "round");
  CHECK(job.last(12) == "");
  for (const int id : {1, 12}) job.send(id, {{"kind", "ended"}, {"attempt", 0}});
  CHECK(job.last_of(12, "finish")["code"] == 0);
}

TEST_CASE("coordinator: a returning agent gets the messages that it missed") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 3, .keep_alive_timeout = 30});
  job.join(1, {{"serves", true}});
  job.join(2);
  const json back = {{"kind", "rejoin"}, {"agent", "launcher 2"}, {"attempt", 0}};
  SUBCASE("a stop") {
    job.coordinator.on_connection_failure(2);
    job.send(1, {{"kind", "failed"}, {"reason", "rank 0 failed"}});
    job.send(12, back);
    CHECK(job.last_of(12, "stop")["reason"] == "rank 0 failed");
  }
  SUBCASE("a round") {
    job.send(1, {{"kind", "failed"}});
    job.join(2);
    job.join(1, {{"attempt", 0}});  // messages to machine 2 are now lost
    REQUIRE(job.rounds == 2);
    job.send(12, back);
    job.send(12, {{"kind", "failed"}, {"attempt", 0}});  // in the earlier round
    job.join(12, {{"agent", "launcher 2"}, {"attempt", 0}});
    CHECK(job.last_of(12, "round")["attempt"] == 1);
    CHECK(job.last_of(12, "round")["machine_rank"] == 1);
    CHECK(job.last(1) == "round");
  }
  SUBCASE("the end") {
    job.send(2, {{"kind", "ended"}});
    job.coordinator.on_connection_failure(2);
    job.send(1, {{"kind", "ended"}});
    job.send(12, back);
    CHECK(job.last_of(12, "finish")["code"] == 0);
  }
  SUBCASE("it was given up and has a place in the next round") {
    job.silent = 2;
    job.advance(32);
    REQUIRE(job.last(1) == "stop");
    job.join(1);
    job.send(12, back);
    CHECK(job.last(12) == "stop");
    job.join(12, {{"agent", "launcher 2"}});
    CHECK(job.last_of(12, "round")["attempt"] == 1);
  }
}

TEST_CASE("coordinator: the machine_rank of a silent machine is free for another launcher") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1, .keep_alive_timeout = 30});
  job.join(1, {{"serves", true}, {"machine_rank", 0}});
  job.join(2, {{"machine_rank", 1}});
  job.advance(1);
  job.join(3, {{"machine_rank", 1}});
  CHECK(job.last(3) == "refused");
  job.silent = 2;
  job.advance(5);
  job.join(3, {{"machine_rank", 1}});
  job.join(1, {{"machine_rank", 0}, {"serves", true}});
  CHECK(job.last_of(3, "round")["machine_rank"] == 1);
}

TEST_CASE("coordinator: its own suspension does not count as a machine's silence") {
  Job job({.min_machines = 2, .max_machines = 2, .keep_alive_timeout = 2});
  job.join(1);
  job.join(2);
  job.advance(3);
  for (const int pause : {3, 600}) {
    job.now += std::chrono::seconds(pause);
    job.coordinator.tick(job.now);
    CHECK(job.last(1) == "round");
    job.advance(3);
    CHECK(job.last(1) == "round");
  }
  Job gathers({.min_machines = 2, .max_machines = 2, .join_timeout = 60});
  gathers.join(1);
  gathers.advance(30);
  gathers.now += 600s;
  gathers.advance(20);
  CHECK(gathers.last(1) == "waiting");
}

TEST_CASE("coordinator: the messages while machines gather grow linearly with them") {
  const auto bytes_at = [](int machines) {
    std::size_t bytes = 0;
    const CoordinatorSettings settings{.min_machines = machines, .max_machines = machines};
    Coordinator coordinator(settings,
                            [&](int, const json& message) { bytes += message.dump().size(); });
    for (int id = 0; id < machines - 20; ++id) {
      const json join = {{"kind", "join"},
                         {"protocol", kProtocol},
                         {"agent", str_of(id)},
                         {"host", "node" + str_of(id)},
                         {"machine_rank", id},
                         {"min_machines", machines},
                         {"max_machines", machines},
                         {"serves", id == 0},
                         {"port", 1000}};
      coordinator.receive(id, join, "10.0.0.1", "10.0.0.9", Clock::time_point{});
    }
    bytes = 0;
    coordinator.tick(Clock::time_point{} + 1s);
    return bytes;
  };
  CHECK(bytes_at(1000) < 16 * bytes_at(100));
  CHECK(bytes_at(1000) < 200'000);
}

TEST_CASE("coordinator: a line names at most sixteen of the missing machines") {
  Job job({.min_machines = 100, .max_machines = 100});
  for (int id = 0; id < 50; ++id) job.join(id, {{"machine_rank", id}, {"serves", id == 0}});
  job.advance(1);
  const std::string text = job.last_of(0, "waiting")["text"];
  CHECK(text.find("50 of 100 machines are present; missing: machine_rank 50, 51, ") == 0);
  CHECK(text.find(", 65 and 34 more; 5") != std::string::npos);
}

TEST_CASE("coordinator: a machine beyond the maximum waits for a place") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
  job.join(1);
  job.join(2);
  job.join(3);
  CHECK(job.rounds == 1);
  CHECK(job.last(3) == "");
  job.coordinator.on_disconnect(2, "closed", job.now);
  job.join(1);
  CHECK(job.rounds == 2);
  CHECK(job.last(3) == "round");
}

TEST_CASE("coordinator: the text says if more machines gather than take part") {
  for (const std::int64_t least : {1, 2}) {
    Job job({.min_machines = least, .max_machines = 2, .max_restarts = 1});
    for (const int id : {1, 2, 3}) job.join(id);
    job.send(1, {{"kind", "failed"}, {"code", 7}, {"reason", "rank 0 failed"}});
    job.advance(2);
    const std::string text = job.last_of(3, "waiting")["text"];
    CHECK_MESSAGE(text.find("3 machines are here, at most 2 take part; 59") == 0, text);
  }
}

TEST_CASE("coordinator: no more machines are reported as present than had a place") {
  Job job({.min_machines = 1, .max_machines = 3, .last_call_timeout = 10});
  job.join(1, {{"serves", true}});
  job.advance(11);
  REQUIRE(job.rounds == 1);
  for (const int id : {2, 3, 4, 5}) job.join(id);
  job.advance(11);
  CHECK(job.last_of(1, "stop")["reason"] == "node2 and 1 more have joined");
  job.join(1, {{"serves", true}});
  CHECK(job.last(2) == "round");
  CHECK(job.last(3) == "round");
  CHECK(job.last_of(4, "round").is_null());
  Job full({.min_machines = 1, .max_machines = 2, .last_call_timeout = 10});
  full.join(1, {{"serves", true}});
  full.advance(11);
  for (const int id : {2, 3}) full.join(id);
  full.advance(11);
  CHECK(full.last_of(1, "stop")["reason"] == "node2 has joined");
}

TEST_CASE("coordinator: too few machines in time end the job") {
  Job job({.min_machines = 2, .max_machines = 2, .join_timeout = 60});
  job.join(1);
  job.advance(59);
  CHECK(job.last(1) == "waiting");
  job.advance(2);
  CHECK(job.last_of(1, "finish")["code"] == 1);
  CHECK(std::string(job.last_of(1, "finish")["reason"])
            .find("too few machines within join_timeout: 1 of 2") == 0);
}

TEST_CASE("coordinator: a machine that contradicts the others is refused, and disturbs none") {
  const auto refused = [](const json& second) {
    Job job({.min_machines = 2, .max_machines = 2});
    job.join(1, {{"machine_rank", 0}});
    json other = {{"machine_rank", 1}};
    other.update(second);
    job.join(2, other);
    CHECK(job.last(2) == "refused");
    CHECK(job.last(1) == "");
    CHECK(job.rounds == 0);
    return std::string(job.last_of(2, "refused")["code"]);
  };
  CHECK(refused({{"machine_rank", 0}}) == "rendezvous.machine-rank");
  CHECK(refused({{"min_machines", 3}}) == "rendezvous.machines");
  CHECK(refused({{"num_processes", 8}}) == "rendezvous.machines");
  CHECK(refused({{"processes", 0}}) == "rendezvous.machines");
  CHECK(refused({{"program", "q"}}) == "rendezvous.program");
  CHECK(refused({{"protocol", 99}}) == "rendezvous.version");
  CHECK(refused({{"job", "another"}}) == "rendezvous.machines");
  for (const int port : {-1, 0, 65536}) CHECK(refused({{"port", port}}) == "rendezvous.machines");
  for (const int rank : {-2, 2, 1 << 30})
    CHECK(refused({{"machine_rank", rank}}) == "rendezvous.machine-rank");
  for (const char* field : {"host", "address", "program", "job", "run_id", "agent"}) {
    for (const std::string& text : {std::string(257, 'a'), std::string("a\nb"),
                                    std::string("\x1B[2J"), std::string("\xC2\x9B[J")}) {
      CHECK(refused({{field, text}}) == "rendezvous.machines");
    }
  }
  CHECK(refused({{"machine_rank", -1}}) == "rendezvous.machine-rank");  // on some machines only
  Job tolerant({.min_machines = 2, .max_machines = 2, .same_program = false});
  tolerant.join(1);
  tolerant.join(2, {{"program", "q"}});
  CHECK(tolerant.rounds == 1);
}

TEST_CASE("coordinator: a message of wrong types leaves the state unchanged") {
  const std::vector<json> wrong = {json::array(),
                                   nullptr,
                                   3,
                                   "join",
                                   {{"kind", 3}},
                                   {{"kind", "failed"}, {"code", "x"}},
                                   {{"kind", "failed"}, {"code", 7.5}},
                                   {{"kind", "failed"}, {"code", 1}, {"reason", 9}},
                                   {{"kind", "failed"}, {"code", std::uint64_t{1} << 63}},
                                   {{"kind", "leaving"}, {"signal", "TERM"}},
                                   {{"kind", "leaving"}, {"signal", 1e300}},
                                   {{"kind", "ended"}, {"attempt", "0"}},
                                   {{"kind", "rejoin"}, {"agent", 1}},
                                   {{"kind", "join"}, {"protocol", "1"}},
                                   {{"kind", "join"}, {"protocol", 1}, {"processes", 1e300}},
                                   {{"kind", "join"}, {"protocol", 1}, {"serves", 1}},
                                   {{"kind", "join"}, {"host", json::array()}}};
  for (const json& message : wrong) {
    CAPTURE(message.dump());
    Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
    job.join(1);
    job.join(2);
    CHECK(hasten::code_of([&] { job.send(1, message); }) == "rendezvous.message");
    // Both still run: they end well, and none has been stopped.
    CHECK(job.last(2) == "round");
    for (const int id : {1, 2}) job.send(id, {{"kind", "ended"}});
    CHECK(job.last_of(1, "finish")["code"] == 0);
  }
}

TEST_CASE("coordinator: a message that is too long or too deep is not parsed") {
  const std::string fits = R"({"kind": "failed", "reason": ")" + std::string(1000, 'a') + "\"}";
  CHECK(agent_message_of(fits)["kind"] == "failed");
  CHECK(agent_message_of(R"({"a": [[[1]]]})")["a"][0][0][0] == 1);
  CHECK(hasten::code_of([] { agent_message_of(R"({"a": [[[[1]]]]})"); }) == "rendezvous.message");
  CHECK(hasten::code_of([] { agent_message_of(std::string(1 << 20, '[')); }) ==
        "rendezvous.message");
  CHECK(hasten::code_of([] { agent_message_of('"' + std::string(1 << 20, 'a') + '"'); }) ==
        "rendezvous.message");
}

TEST_CASE("coordinator: the reason of a failure is truncated between two characters") {
  Job job({.min_machines = 2, .max_machines = 2});
  job.join(1);
  job.join(2);
  std::string reason = "a";
  while (reason.size() < 100'000) reason += "\xC3\xA4";
  job.send(1, {{"kind", "failed"}, {"reason", reason}});
  const std::string sent = job.last_of(2, "stop")["reason"];
  CHECK(sent.size() == (64 << 10) - 1);
  CHECK_NOTHROW(json(sent).dump());
}

TEST_CASE("coordinator: invalid codes and signals become valid ones") {
  const auto code_after = [](const json& message) {
    Job job({.min_machines = 2, .max_machines = 2});
    job.join(1);
    job.join(2);
    job.send(1, message);
    job.join(2);
    return job.last_of(2, "finish")["code"];
  };
  CHECK(code_after({{"kind", "failed"}, {"code", 0}}) == 1);  // a failure is never a success
  CHECK(code_after({{"kind", "failed"}, {"code", -5}}) == 1);
  CHECK(code_after({{"kind", "failed"}, {"code", 1 << 30}}) == 255);
  CHECK(code_after({{"kind", "leaving"}, {"signal", 2147483647}}) == 255);
  CHECK(code_after({{"kind", "leaving"}, {"signal", -7}}) == 129);
}

TEST_CASE("coordinator: its messages can be sent, whatever bytes a digest contains") {
  Job job({.min_machines = 2, .max_machines = 2});
  job.join(1, {{"program", "eleven byte\xC3\xA4 and more"}});
  job.join(2);
  CHECK(job.last(2) == "refused");
  CHECK_NOTHROW(job.last_of(2, "refused").dump());
}

}  // namespace

}  // namespace rendezvous_coordinator_test
