// File: base/poll_timeout.h (internal)
// Returns the milliseconds until a deadline, for poll(2) and epoll_wait(2).
//
//   poll(&file, 1, poll_timeout(deadline));
//
// It rounds up, so that waiting for less than a millisecond is not a busy loop. It returns 0 after
// the deadline. It returns at most 1000 s, and the caller then asks again. Thread rule: any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hasten {

inline int poll_timeout(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace hasten
