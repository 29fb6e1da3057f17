// File: rendezvous/job_server.h (internal)
// Serves one job on one port: its keys and values to the ranks, and the coordinator to the
// launchers. A connection that does not prove that it knows the token is dropped
// (pending_connections.h).
//
//   JobServer server({.port = 29500, .token = token, .coordinator = settings});
//   const int port = server.port();
//
// The first message of a connection is kAgentGreeting, or kStoreGreeting, which the server echoes.
//
// If the process runs out of file descriptors, new connections wait in the kernel's queue until one
// is closed, and `on_shortage` is called.
//
// The constructor throws IoError "rendezvous.port-taken", "rendezvous.socket", "rendezvous.tls" and
// "launch.start". Thread rule: it runs a thread of its own; any thread may call it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/internal_api.h"
#include "rendezvous/coordinator.h"

namespace hasten::rendezvous {

inline constexpr std::string_view kStoreGreeting = "store 3";  // Includes the protocol's version.
inline constexpr std::string_view kAgentGreeting = "agent";

struct ServerOptions {
  bool loopback_only = true;
  int port = 0;  // 0 means any free port.
  std::string token;
  std::optional<CoordinatorSettings> coordinator{};  // If empty, serves keys and values only.
  // Receives a sentence that says why new connections wait, at most once a minute, in the server's
  // thread.
  std::function<void(const std::string&)> on_shortage{};
};

class HASTEN_INTERNAL_API JobServer {
 public:
  explicit JobServer(ServerOptions options);
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;
  ~JobServer();

  int port() const { return port_; }
  // Deletes all keys and values, so that the next attempt sees none from the last one.
  void clear();
  // True if the job has ended and every launcher has been notified and has disconnected.
  bool all_disconnected() const;

 private:
  class Loop;
  int port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace hasten::rendezvous
