// Agents that lose the connection to the coordinator and return, and suspended machines.
#include <doctest/doctest.h>

#include "rendezvous/coordinator.h"
#include "unit/rendezvous/coordinator_job.h"

namespace rendezvous_returning_agents_test {

using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;
using namespace hasten::coordinator_job;

TEST_CASE("coordinator: an agent returns with another connection, and its ranks continue") {
  Job job({.min_machines = 2, .max_machines = 2, .keep_alive_timeout = 30});
  job.join(1, {{"hosts_coordinator", true}});
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
  job.join(1, {{"hosts_coordinator", true}});
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
  job.join(1, {{"hosts_coordinator", true}, {"machine_rank", 0}});
  job.join(2, {{"machine_rank", 1}});
  job.advance(1);
  job.join(3, {{"machine_rank", 1}});
  CHECK(job.last(3) == "refused");
  job.silent = 2;
  job.advance(5);
  job.join(3, {{"machine_rank", 1}});
  job.join(1, {{"machine_rank", 0}, {"hosts_coordinator", true}});
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

}  // namespace rendezvous_returning_agents_test
