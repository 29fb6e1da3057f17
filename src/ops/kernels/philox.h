// File: ops/kernels/philox.h (internal)
// Philox 4x32-10 for a row of dropout decisions: 8 decisions of 16 bits per counter, and 16
// counters per batch. The counter of a column does not depend on the instruction set, so a seed
// drops the same elements on every CPU.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

// A vector of 64-bit lanes as wide as the registers. A lane holds one 32-bit word. The rounds leave
// other bits in its upper half, which the next multiplication ignores and which is cut off at the
// end.
#if defined(__AVX512F__)
typedef std::uint64_t Lanes __attribute__((vector_size(64)));
HASTEN_INLINE Lanes multiply(Lanes a, Lanes b) {
  return (Lanes)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
typedef std::uint64_t Lanes __attribute__((vector_size(32)));
HASTEN_INLINE Lanes multiply(Lanes a, Lanes b) {
  return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
typedef std::uint64_t Lanes __attribute__((vector_size(16)));
HASTEN_INLINE Lanes multiply(Lanes a, Lanes b) {
#if defined(__x86_64__)
  return (Lanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
  return (Lanes)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}
#endif

inline constexpr Index kCounters = 16;
inline constexpr Index kDecisionsPerBatch = kCounters * 8;
inline constexpr Index kLanes = sizeof(Lanes) / sizeof(std::uint64_t);

HASTEN_INLINE Lanes lanes(std::uint64_t value) { return Lanes{} + value; }

// Writes 128 random 16-bit words for columns [batch * 128, batch * 128 + 128) of a row.
HASTEN_INLINE void philox_batch(std::uint64_t seed, std::uint64_t row, std::uint32_t batch,
                                std::uint16_t* out) {
  alignas(64) std::uint64_t first_counter[kCounters];
  for (Index i = 0; i < kCounters; ++i)
    first_counter[i] = batch * static_cast<std::uint64_t>(kCounters) + i;
  const Lanes low = lanes(0xFFFFFFFFu), factor0 = lanes(0xD2511F53u), factor1 = lanes(0xCD9E8D57u);
  for (Index part = 0; part < kCounters; part += kLanes) {
    Lanes c0, c1 = lanes(row & 0xFFFFFFFFu), c2 = lanes(row >> 32), c3 = lanes(0);
    std::memcpy(&c0, first_counter + part, sizeof(c0));
    std::uint32_t k0 = static_cast<std::uint32_t>(seed),
                  k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Lanes a = multiply(c0, factor0), b = multiply(c2, factor1);
      c0 = (b >> 32) ^ c1 ^ lanes(k0);
      c2 = (a >> 32) ^ c3 ^ lanes(k1);
      c1 = b;
      c3 = a;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const Lanes first = (c0 & low) | (c1 << 32), second = (c2 & low) | (c3 << 32);
    std::memcpy(out + 4 * part, &first, sizeof(first));
    std::memcpy(out + 4 * (kCounters + part), &second, sizeof(second));
  }
}

// Calls body(first, count, factor) for ranges of at most 128 columns. factor[i] belongs to the
// column at first + i and is 0 or the scale, or 1 if nothing is dropped, so that one loop serves
// both cases.
template <class Body>
HASTEN_INLINE void for_decisions(const Dropout& options, Index row, Index columns, Body body) {
  // A copy, because the compiler must assume that a store to float memory may change the options.
  const Dropout dropout = options;
  const int threshold = static_cast<int>(dropout.threshold);
  alignas(64) std::uint16_t random[kDecisionsPerBatch];
  alignas(64) float factor[kDecisionsPerBatch];
  if (dropout.threshold == 0) {
    for (Index i = 0; i < kDecisionsPerBatch; ++i) factor[i] = 1.0f;
  }
  for (Index first = 0; first < columns; first += kDecisionsPerBatch) {
    const Index count = columns - first < kDecisionsPerBatch ? columns - first : kDecisionsPerBatch;
    if (dropout.threshold != 0) {
      philox_batch(dropout.seed, static_cast<std::uint64_t>(row),
                   static_cast<std::uint32_t>(first / kDecisionsPerBatch), random);
      for (Index i = 0; i < kDecisionsPerBatch; ++i)
        factor[i] = random[i] >= threshold ? dropout.scale : 0.0f;
    }
    body(first, count, static_cast<const float*>(factor));
  }
}

}  // namespace hasten::ops::HASTEN_ISA
