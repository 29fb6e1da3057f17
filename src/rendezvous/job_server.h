// File: rendezvous/job_server.h (internal)
// What one process of a job serves to all others, on one port: the keys and values of its ranks,
// and the messages of the coordinator to the machines' launchers. A connection that does not show
// the token is dropped (strangers.h).
//
//   JobServer server({.port = 29500, .token = token, .coordinator = settings});
//   server.port();
//
// The first message of a connection is kStoreGreeting, which is answered by the same, or
// kAgentGreeting.
//
// If the process has no file left for another connection, those that come wait in the kernel's
// queue until one is closed, and the owner is told.
//
// The constructor throws IoError "rendezvous.port-taken", "rendezvous.socket", "launch.start". Thread rule: has a
// thread of its own; the calls below may come from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/coordinator.h"

namespace hasten::rendezvous {

inline constexpr std::string_view kStoreGreeting = "store 2";  // with the protocol's version
inline constexpr std::string_view kAgentGreeting = "agent";

struct ServerOptions {
  bool loopback_only = true;
  int port = 0;  // 0: any
  std::string token;
  std::optional<Settings> coordinator{};  // none: keys and values alone
  // What keeps new connections waiting, in a sentence, at most once a minute. It is called by the
  // server's thread.
  std::function<void(const std::string&)> on_shortage{};
};

class JobServer {
 public:
  explicit JobServer(ServerOptions options);
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;
  ~JobServer();

  int port() const { return port_; }
  // The next attempt must not meet the keys and values of one that is over.
  void clear();
  // Whether the job has ended, and every machine's launcher has been told and is gone.
  bool all_have_gone() const;

 private:
  class Loop;
  int port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace hasten::rendezvous
