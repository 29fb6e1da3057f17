// File: process/watchdog.h (internal)
// Ends a job that hangs, and tells why. Each rank has one for each group of several: where a
// collective of this rank has not ended within the limit, all watchdogs tell each other by the
// job's store what their ranks do, one of them prints who is late, and every process ends with
// kLateRankCode.
//
// Who prints: the late rank, as its launcher then shows its words as those of the first that
// failed; a rank that waits, where the late one does not answer. The others end a moment later.
//
// It looks at the clock ten times a second, and at the store four times; a c10d::TCPStore is asked
// only where no collective has begun or ended for half of the limit, as it complains on standard
// error when its server has ended. A store that does not answer holds up nothing.
//
// This is the one place in the library that prints and ends a process: the thread that hangs
// cannot throw. Thread rule: has two threads of its own, which take no signals.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process/call_log.h"

namespace hasten {

struct WatchdogOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

// Where this rank runs, for a report on the day it does not answer: before the watchdogs begin.
void tell_place(c10d::Store& store, std::int64_t rank);
std::string place_key(std::int64_t rank);

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
