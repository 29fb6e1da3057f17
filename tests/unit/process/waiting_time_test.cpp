// The time that a collective has taken, with simulated clocks.
#include "process/watch/waiting_time.h"

#include <doctest/doctest.h>

namespace process_waiting_time_test {

using hasten::WaitingTime;
using namespace std::chrono_literals;

namespace {

// Polls ten times a second from `from` on, as the watchdog does, and returns the last answer.
WaitingTime::Clock::duration last_of_polls(WaitingTime& waiting,
                                           WaitingTime::Clock::time_point since,
                                           WaitingTime::Clock::time_point from,
                                           WaitingTime::Clock::duration time) {
  WaitingTime::Clock::duration last{};
  for (auto at = from; at <= from + time; at += 100ms) last = waiting.of(since, at);
  return last;
}

}  // namespace

TEST_CASE("waiting time: it follows the steady clock while the process runs") {
  const auto start = WaitingTime::Clock::now();
  WaitingTime waiting(start);
  CHECK(waiting.of(std::nullopt, start + 100ms) == 0ms);
  CHECK(waiting.of(start + 130ms, start + 200ms) == 70ms);
  CHECK(last_of_polls(waiting, start + 130ms, start + 300ms, 5s) == 5170ms);
  CHECK(waiting.of(start + 5350ms, start + 5400ms) == 50ms);  // the next call
  CHECK(waiting.of(std::nullopt, start + 5500ms) == 0ms);
}

TEST_CASE("waiting time: a suspension counts for little, whenever it begins") {
  const auto start = WaitingTime::Clock::now();
  WaitingTime waiting(start);
  CHECK(waiting.of(start, start + 100ms) == 100ms);
  CHECK(waiting.of(start, start + 1h) <= 2100ms);
  CHECK(last_of_polls(waiting, start, start + 1h, 1s) <= 3100ms);
  // The call began just before the suspension, and is first seen after it.
  const auto since = start + 1h + 1050ms;
  CHECK(waiting.of(since, start + 2h) <= 2s);
}

TEST_CASE("waiting time: a hanging call is found although the process is suspended repeatedly") {
  const auto start = WaitingTime::Clock::now();
  WaitingTime waiting(start);
  WaitingTime::Clock::duration waited{};
  int suspensions = 0;
  auto at = start;
  for (; waited < 10min && suspensions < 100; ++suspensions) {
    waited = last_of_polls(waiting, start, at, 30s);
    at += 30s + 1h;
  }
  CHECK(waited >= 10min);
  CHECK(suspensions >= 18);  // each adds at most two seconds
  CHECK(suspensions <= 21);
}

}  // namespace process_waiting_time_test
