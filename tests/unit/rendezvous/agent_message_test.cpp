// Wrong, too long and too deeply nested messages of agents, and messages of the coordinator.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rendezvous/coordinator.h"
#include "unit/code_of.h"
#include "unit/json_test_suite.h"
#include "unit/rendezvous/coordinator_job.h"

namespace rendezvous_agent_message_test {

using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;
using namespace hasten::coordinator_job;

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
                                   {{"kind", "join"}, {"protocol", 1}, {"hosts_coordinator", 1}},
                                   {{"kind", "join"}, {"host", json::array()}}};
  for (const json& message : wrong) {
    CAPTURE(message.dump());
    Job job({.min_machines = 2, .max_machines = 2, .max_restarts = 1});
    job.join(1);
    job.join(2);
    CHECK(hasten::code_of([&] { job.send(1, message); }) == "rendezvous.message");
    // Both agents still run: neither has been stopped, and both end without an error.
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

TEST_CASE("coordinator: a message that is not JSON is refused") {
  for (const hasten::test::JsonText& text : hasten::test::json_test_suite()) {
    if (!text.is_invalid()) continue;
    CAPTURE(text.name);
    CHECK(hasten::code_of([&] { agent_message_of(text.text); }) == "rendezvous.message");
  }
  CHECK(hasten::code_of([] { agent_message_of(R"({"code": 0, "code": 1})"); }) ==
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

}  // namespace rendezvous_agent_message_test
