// File: rendezvous/job_server.h (internal)
// What one process of a job serves to all others, on one port: the keys and values of its ranks,
// and the word of the coordinator to the machines' launchers. Who does not know the token is
// dropped.
//
//   JobServer server({.port = 29500, .token = token, .coordinator = settings});
//   server.port();
//
// Throws IoError "rendezvous.port-taken". Thread rule: has a thread of its own; the calls below may
// come from any.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "rendezvous/coordinator.h"

namespace hasten::rendezvous {

struct ServerOptions {
  bool loopback_only = true;
  int port = 0;  // 0: any
  std::string token;
  std::optional<Settings> coordinator;  // none: keys and values alone
};

class JobServer {
 public:
  explicit JobServer(ServerOptions options);
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;
  ~JobServer();

  int port() const { return port_; }
  // Keys and values of an attempt that is over are none of the next one's business.
  void clear();
  // Until every machine has heard the end, or `seconds` are over.
  void wait_for_farewells(double seconds);

 private:
  class Loop;
  int port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace hasten::rendezvous
