// A coordinator and the messages of its agents, with a simulated clock.
//
//   Job job({.min_machines = 2, .max_machines = 2});
//   job.join(1);
//   job.join(2);
//   CHECK(job.last(2) == "start");
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rendezvous/coordinator.h"

namespace hasten::coordinator_job {

using namespace hasten::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;

inline std::string str_of(int number) { return std::to_string(number); }

struct Job {
  CoordinatorSettings settings;
  std::map<int, std::vector<json>> sent;
  Clock::time_point now{};
  int rounds = 0;
  int silent = 0;  // the agent that sends no messages; 0 means none
  Coordinator coordinator{settings,
                          [this](int id, const json& message) { sent[id].push_back(message); },
                          [this] { ++rounds; }};

  explicit Job(CoordinatorSettings requested) : settings(requested) {}

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

}  // namespace hasten::coordinator_job
