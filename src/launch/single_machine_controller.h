// File: launch/single_machine_controller.h (internal)
// A launch on this machine alone. Its server listens on loopback only.
#pragma once

#include <optional>
#include <string>

#include "launch/console.h"
#include "launch/job_controller.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"

namespace hasten {

class SingleMachineController : public JobController {
 public:
  // Throws IoError "rendezvous.port-taken" if the requested port is in use.
  SingleMachineController(const LaunchConfiguration& run, Console& console);

  RoundOrResult next() override;
  void report_failure(int code, const std::string& reason) override;
  void report_success() override {}
  void report_leaving(int signal) override;

 private:
  const LaunchConfiguration& run_;
  Console& console_;
  const std::string run_id_;    // the job's name; empty if neither the user nor Slurm gives one
  const int earlier_restarts_;  // by Slurm
  std::string token_;
  rendezvous::JobServer server_;
  std::optional<rendezvous::ReservedPort> port_;
  int attempt_ = 0;
  int failed_code_ = 0;
  int leave_signal_ = 0;
};

}  // namespace hasten
