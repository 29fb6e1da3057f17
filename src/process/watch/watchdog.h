// File: process/watch/watchdog.h (internal)
// Ends a job that hangs, and reports why. Each rank has one watchdog for each group of several
// ranks. If a collective has not ended within the limit, all watchdogs exchange through the job's
// store what their ranks are doing, one of them prints who is late, and every process ends with
// kLateRankCode. Time in which this process is suspended does not count.
//
// The late rank prints the report, because its launcher then shows it as the report of the first
// rank that failed. If the late rank does not answer, a waiting rank prints the report. The others
// end a moment later.
//
// The watchdog checks the clock ten times a second and the store four times a second. It checks the
// store less often if there are more than 250 ranks. It checks a c10d::TCPStore only if no
// collective has begun or ended for half of the limit, because that store prints errors when its
// server has ended. The end is delayed only for a bounded time, even if the store does not answer,
// the hanging thread holds a lock, or nobody reads the standard error.
//
// Besides forks that hasten makes, this is the only place in the library that prints and ends a
// process, because the thread that hangs cannot throw. Thread rule: the watchdog has two threads of
// its own, which block all signals.
#pragma once

#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/watch/call_log.h"
#include "process/watch/report_exchange.h"

namespace hasten {

class Watchdog {
 public:
  // Only this group may use `store`, which is cloned. Throws IoError "io.thread" if the system has
  // no threads left.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<CallLog> calls,
           const RankOptions& options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  class State;
  void end_threads();

  std::shared_ptr<State> state_;  // shared with a thread that a store may block
  std::thread clock_thread_, exchange_thread_;
};

}  // namespace hasten
