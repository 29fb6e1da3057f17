// File: rendezvous/backoff.h (internal)
// Pauses between attempts that fail: each about twice as long as the one before, and of random
// length, so that a thousand machines which lost the same server do not all return at once.
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

  // Half of the pause is certain, the other half random.
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
