// File: base/running_clock.h (internal)
// A clock that stands still while this process is suspended: by SIGSTOP, the cgroup freezer, a
// scheduler that takes turns between jobs, or a paused virtual machine. The system's steady clock
// goes on meanwhile, so that a limit measured with it is over at the moment the process wakes.
//
//   RunningClock clock;
//   const auto began = clock.now();
//   while (clock.now() - began < limit) poll(files, count, 500);
//
// The owner asks for the time at least once each kLongestStep. Of a longer gap between two
// questions only kLongestStep counts, so a suspended process loses at most that much of its limit.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace hasten {

class RunningClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLongestStep = std::chrono::seconds(2);

  explicit RunningClock(Clock::time_point start = Clock::now()) : time_(start), looked_(start) {}

  // `at`: the steady clock's time, which tests make up.
  Clock::time_point now(Clock::time_point at = Clock::now()) {
    has_paused_ = at - looked_ > kLongestStep;
    time_ += std::clamp(at - looked_, Clock::duration::zero(), kLongestStep);
    looked_ = std::max(at, looked_);
    return time_;
  }

  // Whether the process was suspended, or did not ask, before the last question. What came
  // meanwhile is then still to be read.
  bool has_paused() const { return has_paused_; }

 private:
  Clock::time_point time_, looked_;
  bool has_paused_ = false;
};

}  // namespace hasten
