// File: base/running_clock.h (internal)
// A clock that stands still while this process is suspended: by SIGSTOP, the cgroup freezer, a
// scheduler that alternates between jobs, or a paused virtual machine. The system's steady clock
// keeps running, so a limit measured with it would have expired when the process wakes up.
//
//   RunningClock clock;
//   const auto began = clock.now();
//   while (clock.now() - began < limit) poll(files, count, 500);
//
// The owner calls now() at least once every kMaxStep. A longer gap counts as kMaxStep, so a
// suspended process loses at most that much of its limit. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace hasten {

class RunningClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kMaxStep = std::chrono::seconds(2);

  explicit RunningClock(Clock::time_point start = Clock::now()) : time_(start), last_read_(start) {}

  // `at` is the time of the steady clock. Only tests pass it.
  Clock::time_point now(Clock::time_point at = Clock::now()) {
    was_suspended_ = at - last_read_ > kMaxStep;
    time_ += std::clamp(at - last_read_, Clock::duration::zero(), kMaxStep);
    last_read_ = std::max(at, last_read_);
    return time_;
  }

  // True if the last gap was longer than kMaxStep. Messages that arrived meanwhile are still
  // unread.
  bool was_suspended() const { return was_suspended_; }

 private:
  Clock::time_point time_, last_read_;
  bool was_suspended_ = false;
};

}  // namespace hasten
