// File: launch/job_controller.h (internal)
// Decides when this machine's ranks start, stop and start again. On one machine the launcher
// decides; on several machines the coordinator decides.
//
//   while (true) {
//     const RoundOrResult next = controller.next();  // a round, or the result
//     ... run the ranks, report to controller how they end, and ask it for a stop request ...
//   }
//
// Thread rule: the launcher's own thread.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "hasten/launch/launcher.h"

namespace hasten {

// The exit code of the job, with the reason if the launcher has not reported it yet.
struct JobResult {
  int code = 0;
  std::string reason;
};
using RoundOrResult = std::variant<Round, JobResult>;

// A request to stop all ranks of this machine.
struct StopRequest {
  bool after_failure = false;  // ranks that wait for a dead one need no long grace period
  int signal = 0;              // the signal because of which another machine leaves, or 0
};

class JobController {
 public:
  virtual ~JobController() = default;

  virtual RoundOrResult next() = 0;

  // The descriptor that the launcher polls while a round runs; -1 if there is none.
  virtual int descriptor() const { return -1; }
  virtual short events() const { return 0; }
  // Milliseconds after which poll_stop_request() is called even if no message has come; -1 means no
  // limit.
  virtual int longest_wait() const { return -1; }
  // Reads the messages that have come. Returns a request if all ranks must stop.
  virtual std::optional<StopRequest> poll_stop_request() { return std::nullopt; }
  // Reports that the first of this machine's ranks has failed, or that they could not be started.
  virtual void report_failure(int code, const std::string& reason) = 0;
  // Reports that all of this machine's ranks have ended without a failure.
  virtual void report_success() = 0;
  // Reports that a signal has asked the launcher to end.
  virtual void report_leaving(int signal) = 0;
};

}  // namespace hasten
