// Machines that join, leave, fail and contradict each other, with a simulated clock.
#include <doctest/doctest.h>

#include <string>

#include "rendezvous/coordinator.h"
#include "unit/rendezvous/coordinator_job.h"

namespace rendezvous_coordinator_test {

using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;
using namespace hasten::coordinator_job;

TEST_CASE("coordinator: a fixed number of machines starts in order of rank") {
  Job job({.min_machines = 3, .max_machines = 3, .earlier_restarts = 2});
  job.join(7, {{"machine_rank", 2}, {"run_id", "another"}});
  job.join(8, {{"machine_rank", 0}, {"hosts_coordinator", true}, {"run_id", "the name"}},
           "127.0.0.1");
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
  CHECK(third["earlier_restarts"] == 2);
  CHECK(third["run_id"] == "the name");
  CHECK(first["run_id"] == "the name");
  // node8 has connected from a loopback address; the others reach it at 10.0.0.9.
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
  CHECK(job.last_of(2, "stop")["signal"] == 0);
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
  CHECK(job.last(1) == "round");  // machine 3 may leave right after it joined
  job.advance(2);
  CHECK(job.last_of(1, "stop")["reason"] == "node3 has joined");
  job.join(2);
  job.join(1);
  CHECK(job.rounds == 2);
  CHECK(job.last_of(1, "round")["machine_rank"] == 0);  // as before
  CHECK(job.last_of(3, "round")["machine_rank"] == 2);
  CHECK(job.last_of(3, "round")["world_size"] == 6);
  // One machine is lost. The others would continue if a restart were left, but none is left here.
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
  job.join(1, {{"hosts_coordinator", true}});
  job.join(2);
  job.send(2, {{"kind", "leaving"}, {"signal", 15}});
  CHECK(job.last_of(1, "stop")["signal"] == 15);
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
  job.join(1, {{"hosts_coordinator", true}});
  job.join(2);
  job.join(1, {{"hosts_coordinator", true}});
  REQUIRE(job.last_of(2, "round")["num_machines"] == 2);
  job.send(1, {{"kind", "leaving"}, {"signal", 10}});
  CHECK(job.last_of(2, "stop")["signal"] == 10);
  job.join(2);
  CHECK(job.last_of(2, "finish")["code"] == 138);
}

TEST_CASE("coordinator: the loss of the rendezvous host ends the job in any state") {
  Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 5});
  job.join(1, {{"hosts_coordinator", true}}, "127.0.0.1");
  SUBCASE("while all run") { job.join(2); }
  SUBCASE("after its ranks could not start") {
    job.join(2);
    job.send(1, {{"kind", "failed"}, {"code", 4}, {"reason", "no space"}});
    CHECK(job.last_of(2, "stop")["reason"] == "no space");
  }
  SUBCASE("while machines gather") {}
  SUBCASE("while it leaves") {
    job.join(2);
    job.send(1, {{"kind", "exited"}});
  }
  job.coordinator.on_disconnect(1, "closed", job.now);
  CHECK(job.coordinator.finished());
  job.join(2);
  CHECK(job.last_of(2, "finish")["code"] == 1);
  job.send(2, {{"kind", "exited"}});
  CHECK(job.coordinator.all_disconnected());
}

TEST_CASE("coordinator: a machine without ranks that leaves changes nothing") {
  Job gathers({.min_machines = 2, .max_machines = 2, .join_timeout = 60});
  gathers.join(1, {{"hosts_coordinator", true}});
  gathers.join(2, {{"min_machines", 7}});  // refused, so that it has no ranks
  gathers.send(2, {{"kind", "leaving"}, {"signal", 15}});
  Job waits({.min_machines = 3, .max_machines = 4});
  waits.join(1, {{"hosts_coordinator", true}});
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
  job.join(1, {{"hosts_coordinator", true}});
  job.join(2);
  job.send(2, {{"kind", "ended"}});
  job.coordinator.on_disconnect(2, "closed", job.now);
  job.join(3);  // causes no restart: the job is about to end
  job.advance(40);
  CHECK(job.last(1) == "round");
  job.send(1, {{"kind", "ended"}});
  CHECK(job.last_of(1, "finish")["code"] == 0);
}

TEST_CASE("coordinator: unstable launchers restart the others less and less often") {
  Job job({.min_machines = 1, .max_machines = 2, .join_timeout = 600, .last_call_timeout = 10});
  job.join(1, {{"hosts_coordinator", true}});
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
                         {"hosts_coordinator", id == 0},
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
  for (int id = 0; id < 50; ++id)
    job.join(id, {{"machine_rank", id}, {"hosts_coordinator", id == 0}});
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
  job.join(1, {{"hosts_coordinator", true}});
  job.advance(11);
  REQUIRE(job.rounds == 1);
  for (const int id : {2, 3, 4, 5}) job.join(id);
  job.advance(11);
  CHECK(job.last_of(1, "stop")["reason"] == "node2 and 1 more have joined");
  job.join(1, {{"hosts_coordinator", true}});
  CHECK(job.last(2) == "round");
  CHECK(job.last(3) == "round");
  CHECK(job.last_of(4, "round").is_null());
  Job full({.min_machines = 1, .max_machines = 2, .last_call_timeout = 10});
  full.join(1, {{"hosts_coordinator", true}});
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
  // Only some machines give a rank.
  CHECK(refused({{"machine_rank", -1}}) == "rendezvous.machine-rank");
  Job tolerant({.min_machines = 2, .max_machines = 2, .same_program = false});
  tolerant.join(1);
  tolerant.join(2, {{"program", "q"}});
  CHECK(tolerant.rounds == 1);
}

}  // namespace rendezvous_coordinator_test
