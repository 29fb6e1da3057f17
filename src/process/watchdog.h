// File: process/watchdog.h (internal)
// Ends a job that hangs, and tells why. Each rank has one for each group of several: where a
// collective of this rank has not ended within the limit, all watchdogs tell each other by the
// job's store what their ranks do, one of them prints who is late, and every process ends with
// kLateRankCode. Time in which this process is suspended does not count.
//
// The late rank prints, as its launcher then shows its lines as those of the first that failed; a
// rank that waits prints where the late one does not answer. The others end a moment later.
//
// It looks at the clock ten times a second, and at the store four times; a c10d::TCPStore is asked
// only where no collective has begun or ended for half of the limit, as it complains on standard
// error when its server has ended. Nothing holds up the end for longer than a bound: not a store
// that does not answer, not a lock of the thread that hangs, not a standard error that nobody
// reads.
//
// This is the one place in the library that prints and ends a process: the thread that hangs
// cannot throw. Thread rule: has two threads of its own, which take no signals.
#pragma once

#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/call_log.h"
#include "process/report_exchange.h"

namespace hasten {

class Watchdog {
 public:
  // `store`: of the group alone; it is cloned.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<CallLog> calls,
           const WatchdogOptions& options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  class Post;
  std::shared_ptr<Post> post_;  // also of a thread that a store holds up
  std::thread watching_, talking_;
};

}  // namespace hasten
