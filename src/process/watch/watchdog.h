// File: process/watch/watchdog.h (internal)
// Ends a job that hangs, and reports why. Each rank has one for each group of several ranks. If a
// collective has not ended within the limit, all watchdogs exchange through the job's store what
// their ranks are doing, one of them prints who is late, and every process ends with kLateRankCode.
// Time in which this process is suspended does not count.
//
// The late rank prints, because its launcher then shows the report as that of the first rank that
// failed. If it does not answer, a rank that waits prints. The others end a moment later.
//
// The watchdog checks the clock ten times a second and the store four times, the store less often
// if there are more than 250 ranks. A c10d::TCPStore is only asked if no collective has begun or
// ended for half of the limit, because it prints errors when its server has ended. Nothing delays
// the end for longer than a bound: neither a store that does not answer, nor a lock of the thread
// that hangs, nor a standard error that nobody reads.
//
// This is the only place in the library that prints and ends a process, because the thread that
// hangs cannot throw. Thread rule: the watchdog has two threads of its own, which take no signals.
#pragma once

#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/watch/call_log.h"
#include "process/watch/report_exchange.h"

namespace hasten {

class Watchdog {
 public:
  // `store` is one that only this group uses; it is cloned.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<CallLog> calls,
           const RankOptions& options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with a thread that a store may block
  std::thread clock_thread_, exchange_thread_;
};

}  // namespace hasten
