// File: hasten/base/detail/mix_key.h
// Computes a random number of 64 bits from three numbers, the same on every machine and with every
// compiler.
//
//   const std::uint64_t key = hasten::detail::mix_key(/*seed=*/42, /*epoch=*/3, /*number=*/7);
//   const double uniform = static_cast<double>(key >> 11) * 0x1.0p-53;   // in [0, 1)
//
// Thread rule: a pure function. Source: SplitMix64 (Steele, Lea and Flood, 2014).
#pragma once

#include <cstdint>
#include <initializer_list>

namespace hasten::detail {

// Advances the state of a generator and returns its next number.
constexpr std::uint64_t next_split_mix(std::uint64_t& state) {
  std::uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

// Mixes the numbers in turn, so that the keys of neighbours are unrelated.
constexpr std::uint64_t mix_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t number) {
  std::uint64_t key = 0;
  for (const std::uint64_t part : {seed, epoch, number}) {
    key += part;
    key = next_split_mix(key);
  }
  return key;
}

}  // namespace hasten::detail
