// File: launch/job_controller.h (internal)
// Decides when this machine's ranks start, stop and start again. On one machine the launcher
// decides; on several machines the coordinator decides.
//
//   while (true) {
//     const RoundOrEnd next = controller.next();                   // a round, or the end
//     ... run the ranks, report to controller how they end, and ask it for an order to stop ...
//   }
//
// Thread rule: the launcher's own thread.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "hasten/launch/launcher.h"

namespace hasten {

// The end of the job, with the reason if the launcher has not reported it yet.
struct JobEnd {
  int code = 0;
  std::string reason;
};
using RoundOrEnd = std::variant<Round, JobEnd>;

// An order to stop all ranks of this machine.
struct StopOrder {
  bool after_failure = false;  // ranks that wait for a dead one need no long grace period
};

class JobController {
 public:
  virtual ~JobController() = default;

  virtual RoundOrEnd next() = 0;

  // The descriptor that the launcher polls while a round runs; -1 if there is none.
  virtual int descriptor() const { return -1; }
  virtual short events() const { return 0; }
  // Milliseconds after which stop_order() is called even if no message has come; -1 means no limit.
  virtual int longest_wait() const { return -1; }
  // Reads the messages that have come. Returns an order if all ranks must stop.
  virtual std::optional<StopOrder> stop_order() { return std::nullopt; }
  // Reports that the first of this machine's ranks has failed, or that they could not be started.
  virtual void report_failure(int code, const std::string& reason) = 0;
  // Reports that all of this machine's ranks have ended without a failure.
  virtual void report_success() = 0;
  // Reports that a signal has asked the launcher to end.
  virtual void report_leaving(int signal) = 0;
};

}  // namespace hasten
