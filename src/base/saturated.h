// File: base/saturated.h (internal)
// Computes numbers of steps and rows that may not fit into 64 bits. Such a result becomes the limit
// of the range, because an overflow and the conversion of a number out of range are undefined.
//
//   saturated_count(1e19);                           // 9223372036854775807
//   saturated_product(std::int64_t{1} << 62, 4);     // 9223372036854775807
//   quotient_rounded_up(7, 3);                       // 3
//
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace hasten {

// Returns the number without its fraction. NaN gives 0.
inline std::int64_t saturated_count(double number) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (std::isnan(number)) return 0;
  if (number >= 0x1p63) return Limits::max();
  return number < -0x1p63 ? Limits::min() : static_cast<std::int64_t>(number);
}

// Both factors are at least 0.
inline std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return b != 0 && a > kMost / b ? kMost : a * b;
}

// The number is at least 0, and the divisor at least 1.
inline std::int64_t quotient_rounded_up(std::int64_t number, std::int64_t divisor) {
  return number / divisor + (number % divisor != 0 ? 1 : 0);
}

}  // namespace hasten
