// File: process/watch/waiting_time.h (internal)
// Measures how long the oldest collective has been in progress. Time in which this process was
// suspended does not count, so a job that a scheduler stops for an hour does not count as hanging.
// A job that hangs is detected no matter how often it is suspended, because its running time adds
// up.
//
//   WaitingTime waiting;
//   while (waiting.of(calls->oldest_call_start()) < limit) std::this_thread::sleep_for(100ms);
//
// The owner must call of() at least once per RunningClock::kMaxStep. Throws nothing. Thread
// rule: one thread at a time.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "base/running_clock.h"

namespace hasten {

class WaitingTime {
 public:
  using Clock = RunningClock::Clock;

  explicit WaitingTime(Clock::time_point start = Clock::now()) : clock_(start), now_(start) {}

  // `since` is when the oldest call in progress began, or nothing if there is none. `at` is the
  // time of the steady clock, which tests can choose.
  Clock::duration of(std::optional<Clock::time_point> since, Clock::time_point at = Clock::now()) {
    const Clock::time_point before = std::exchange(now_, clock_.now(at));
    if (since && *since != since_) {
      // The call began after of() was last called, and the running time since then is known.
      began_ = now_ - std::clamp(at - *since, Clock::duration::zero(), now_ - before);
    }
    since_ = since.value_or(Clock::time_point{});
    return since ? now_ - began_ : Clock::duration::zero();
  }

 private:
  RunningClock clock_;
  Clock::time_point now_, began_;  // in time of clock_
  Clock::time_point since_;        // in time of the steady clock; its epoch if there is no call
};

}  // namespace hasten
