// File: launch/one_machine.h (internal)
// A launch on this machine alone. Its server listens on loopback only.
#pragma once

#include <optional>
#include <string>

#include "launch/console.h"
#include "launch/membership.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"

namespace hasten {

class OneMachine : public Membership {
 public:
  // Throws IoError "rendezvous.port-taken" if the requested port is in use.
  OneMachine(const LaunchConfiguration& run, Console& console);

  Next next() override;
  void failed(int code, const std::string& reason) override;
  void ended() override {}
  void leaving(int signal) override;

 private:
  const LaunchConfiguration& run_;
  Console& console_;
  std::string token_;
  rendezvous::JobServer server_;
  std::optional<rendezvous::ReservedPort> port_;
  int attempt_ = 0;
  int failed_code_ = 0;
  int left_by_ = 0;
};

}  // namespace hasten
