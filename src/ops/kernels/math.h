// File: ops/kernels/math.h (internal)
// Elementary functions in a form that the compiler vectorizes: no branches, no library calls. The
// coefficients are our own least-squares fits at Chebyshev nodes. The stated errors are the largest
// ones on a dense grid, compared with 40-digit values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ops/kernels/kernels.h"

namespace hasten::ops::HASTEN_ISA {

#define HASTEN_INLINE inline __attribute__((always_inline))

HASTEN_INLINE float load(float x) { return x; }
HASTEN_INLINE float load(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
HASTEN_INLINE void store(float& to, float value) { to = value; }
// Rounds to nearest even, as LibTorch does; a NaN stays a NaN.
HASTEN_INLINE void store(bf16& to, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7FC0u : rounded);
}

// Returns e^x within 2 units in the last place. Returns 0 below -87.3, the end of a float's
// exponent range, and so for -infinity too.
HASTEN_INLINE float exp(float x) {
  const float clamped = x < -87.3f ? -87.3f : (x > 88.3f ? 88.3f : x);
  const float turns = clamped * 1.44269504f;
  // Adding and subtracting 1.5 * 2^23 rounds to an integer. Its bits are the low bits of the sum.
  const float shifted = turns + 12582912.0f;
  const float whole = shifted - 12582912.0f;
  // ln 2 is split into two numbers for precision.
  const float f = (clamped - whole * 0.693359375f) + whole * 2.12194440e-4f;
  const float t = f * 1.44269504f;
  float p = 1.54697322e-4f;
  p = p * t + 1.34004327e-3f;
  p = p * t + 9.61802527e-3f;
  p = p * t + 5.55032716e-2f;
  p = p * t + 2.40226507e-1f;
  p = p * t + 6.93147182e-1f;
  p = p * t + 1.0f;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) << 23;
  const float power = std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
  return x < -87.3f ? 0.0f : power;
}

// Returns erf(x) within 1.3e-7: an odd polynomial up to 1, and 1 - exp(polynomial) beyond.
HASTEN_INLINE float erf(float x) {
  const float a = std::fabs(x);
  const float s = a * a;
  float p = 7.88249745e-5f;
  p = p * s - 8.01885501e-4f;
  p = p * s + 5.18931216e-3f;
  p = p * s - 2.68543288e-2f;
  p = p * s + 1.12835974e-1f;
  p = p * s - 3.76126260e-1f;
  p = p * s + 1.12837911f;
  const float b = a > 4.0f ? 4.0f : a;
  float q = 1.57401894e-6f;
  q = q * b - 4.49896725e-5f;
  q = q * b + 5.89148374e-4f;
  q = q * b - 4.72923461e-3f;
  q = q * b + 2.63482314e-2f;
  q = q * b - 1.09971352e-1f;
  q = q * b - 6.31924629e-1f;
  q = q * b - 1.13018370f;
  q = q * b + 3.09378724e-4f;
  const float magnitude = a <= 1.0f ? a * p : 1.0f - exp(q);
  return std::copysign(magnitude, x);
}

}  // namespace hasten::ops::HASTEN_ISA
