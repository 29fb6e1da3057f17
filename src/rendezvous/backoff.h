// File: rendezvous/backoff.h (internal)
// Pauses between failed attempts. Each is about twice as long as the last and partly random, so
// that a thousand machines that lost the same server do not all reconnect at once.
//
//   Backoff backoff(100ms, 5s);
//   while (!attempt()) sleep_for(backoff.next());
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace hasten::rendezvous {

class Backoff {
 public:
  using Pause = std::chrono::milliseconds;
  Backoff(Pause first, Pause longest) : next_(first), longest_(longest) {}

  // Returns half of the current pause plus a random part of the other half.
  Pause next() {
    const Pause pause = next_;
    next_ = std::min(next_ * 2, longest_);
    std::uniform_int_distribution<Pause::rep> part(pause.count() / 2, pause.count());
    return Pause(part(random_));
  }

 private:
  Pause next_, longest_;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace hasten::rendezvous
