// File: hasten/data/row_random.h
// Random numbers derived from a key, the same on every machine and with every compiler.
//
//   RowRandom random(RowContext{.seed = 42, .epoch = 3, .row = 7}.key());
//   if (random.uniform() < 0.15) std::cout << random.below(1000);
//
// Nothing throws. Thread rule: one thread at a time.
// Source: SplitMix64 (Steele, Lea and Flood, 2014).
#pragma once

#include <cstdint>

#include "hasten/base/detail/mix_key.h"

namespace hasten {

class RowRandom {
 public:
  constexpr explicit RowRandom(std::uint64_t key) : state_(key) {}

  constexpr std::uint64_t next() { return detail::next_split_mix(state_); }
  // Returns a number in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // Returns a number in [0, count), for a count above 0. Their probabilities are equal within a
  // relative error of count / 2^64.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

}  // namespace hasten
