#include "base/running_clock.h"

#include <doctest/doctest.h>

namespace base_running_clock_test {

using namespace std::chrono_literals;
using hasten::RunningClock;

TEST_CASE("running clock: it follows the steady clock while it is read often") {
  const auto start = RunningClock::Clock::now();
  RunningClock clock(start);
  for (int second = 1; second <= 30; ++second)
    CHECK(clock.now(start + second * 1s) == start + second * 1s);
}

TEST_CASE("running clock: a suspended process loses at most one step of its limit") {
  const auto start = RunningClock::Clock::now();
  RunningClock clock(start);
  clock.now(start + 1s);
  CHECK(clock.now(start + 1h) == start + 1s + RunningClock::kMaxStep);
  // After several suspensions, the clock still measures the time in which the process ran.
  CHECK(clock.now(start + 1h + 500ms) == start + 1500ms + RunningClock::kMaxStep);
  CHECK(clock.now(start + 2h) == start + 1500ms + 2 * RunningClock::kMaxStep);
}

TEST_CASE("running clock: an earlier time changes nothing") {
  const auto start = RunningClock::Clock::now();
  RunningClock clock(start);
  clock.now(start + 1s);
  CHECK(clock.now(start) == start + 1s);
  CHECK(clock.now(start + 1s) == start + 1s);
}

}  // namespace base_running_clock_test
