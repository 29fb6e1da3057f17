// File: process/waiting_time.h (internal)
// How long the oldest collective has been on its way. Time in which this process was suspended does
// not count, so that a job which a scheduler stops for an hour and wakes is not taken for one that
// hangs; a job that hangs is found however often it is suspended, as what it ran between adds up.
//
//   WaitingTime waiting;
//   while (waiting.of(calls->waits_since()) < limit) std::this_thread::sleep_for(100ms);
//
// The owner asks as often as RunningClock wants to be asked. Nothing is thrown. Thread rule: one
// thread at a time.
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

  // `since`: when the oldest call on its way began; none: no call is. `at`: the steady clock's
  // time, which tests make up.
  Clock::duration of(std::optional<Clock::time_point> since, Clock::time_point at = Clock::now()) {
    const Clock::time_point before = std::exchange(now_, clock_.now(at));
    if (since && *since != since_) {
      // The call began after the last question, and what ran since then is known.
      began_ = now_ - std::clamp(at - *since, Clock::duration::zero(), now_ - before);
    }
    since_ = since.value_or(Clock::time_point{});
    return since ? now_ - began_ : Clock::duration::zero();
  }

 private:
  RunningClock clock_;
  Clock::time_point now_, began_;  // the running clock's
  Clock::time_point since_;        // the steady clock's; the clock's epoch: no call
};

}  // namespace hasten
