#include "ops/kernels/rounded_adamw.h"

#include <algorithm>
#include <type_traits>

#include "ops/kernels/adamw_coefficients.h"
#include "ops/kernels/philox.h"

namespace hasten::ops::HASTEN_ISA {
namespace {

// The kinds of numbers that are rounded. Each kind has its own random numbers.
enum Stream : std::uint64_t { kParameter, kFirstMoment, kSecondMoment, kStreams };

// Random 16-bit numbers for 128 elements of a parameter.
struct alignas(64) Words {
  std::uint16_t of[kDecisionsPerBatch];
};

HASTEN_INLINE void draw(const Rounding& rounding, Stream stream, Index batch, Words& words) {
  philox_batch(rounding.seed, rounding.step * kStreams + stream, static_cast<std::uint32_t>(batch),
               words.of);
}

// Adds 16 random bits below the 16 bits that are kept. The sum carries into the kept bits with the
// right probability.
template <bool kStochastic>
HASTEN_INLINE void round_to(bf16& to, float value, std::uint16_t random) {
  if constexpr (!kStochastic) return store(to, value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const bool is_finite = (bits & 0x7F800000u) != 0x7F800000u;
  const std::uint32_t kept = (bits + (is_finite ? random : 0u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7FC0u : kept);
}
template <bool kStochastic>
HASTEN_INLINE void round_to(float& to, float value, std::uint16_t) {
  to = value;
}

// Calls body(batch, place of the range in the batch, offset from `first`, count) for the parts of a
// range that share a batch of random numbers.
template <class Body>
HASTEN_INLINE void for_batches(Index first, Index count, Body body) {
  for (Index offset = 0; offset < count;) {
    const Index batch = (first + offset) / kDecisionsPerBatch;
    const Index place = (first + offset) % kDecisionsPerBatch;
    const Index here = std::min(kDecisionsPerBatch - place, count - offset);
    body(batch, place, offset, here);
    offset += here;
  }
}

// Uses the same formula as adamw_loop in table.cpp.
template <bool kStochastic, bool kHasGradient, class Parameter, class Moment>
void update(Parameter* __restrict parameter, const Parameter* __restrict gradient,
            Moment* __restrict exp_avg, Moment* __restrict exp_avg_sq, const AdamW& options,
            const Rounding& rounding, Index first, Index count) {
  const AdamWCoefficients step(options);
  Words words[kStreams] = {};
  for_batches(first, count, [&](Index batch, Index place, Index offset, Index here) {
    if constexpr (kStochastic) {
      if constexpr (std::is_same_v<Parameter, bf16>)
        draw(rounding, kParameter, batch, words[kParameter]);
      if constexpr (std::is_same_v<Moment, bf16>) {
        draw(rounding, kFirstMoment, batch, words[kFirstMoment]);
        draw(rounding, kSecondMoment, batch, words[kSecondMoment]);
      }
    }
    const std::uint16_t* __restrict random = words[kParameter].of + place;
    const std::uint16_t* __restrict random1 = words[kFirstMoment].of + place;
    const std::uint16_t* __restrict random2 = words[kSecondMoment].of + place;
    Parameter* __restrict p = parameter + offset;
    Moment* __restrict m = exp_avg + offset;
    Moment* __restrict v = exp_avg_sq + offset;
    for (Index i = 0; i < here; ++i) {
      float g = 0;
      if constexpr (kHasGradient) g = load(gradient[offset + i]) * step.scale;
      const float m_before = load(m[i]);
      const float m_now = m_before + step.one_minus_beta1 * (g - m_before);
      const float v_now = step.beta2 * load(v[i]) + step.one_minus_beta2 * g * g;
      const float p_now = load(p[i]) * step.decay -
                          step.step_size * m_now /
                              (std::sqrt(v_now) * step.inverse_sqrt_correction2 + step.epsilon);
      round_to<kStochastic>(m[i], m_now, random1[i]);
      round_to<kStochastic>(v[i], v_now, random2[i]);
      round_to<kStochastic>(p[i], p_now, random[i]);
    }
  });
}

}  // namespace

template <class Parameter, class Moment>
void rounded_adamw(Parameter* parameter, const Parameter* gradient, Moment* exp_avg,
                   Moment* exp_avg_sq, const AdamW& options, const Rounding& rounding, Index first,
                   Index count) {
  const auto stochastic =
      gradient ? &update<true, true, Parameter, Moment> : &update<true, false, Parameter, Moment>;
  const auto nearest =
      gradient ? &update<false, true, Parameter, Moment> : &update<false, false, Parameter, Moment>;
  const auto run = rounding.stochastic ? stochastic : nearest;
  run(parameter, gradient, exp_avg, exp_avg_sq, options, rounding, first, count);
}

template void rounded_adamw(bf16*, const bf16*, bf16*, bf16*, const AdamW&, const Rounding&, Index,
                            Index);
template void rounded_adamw(bf16*, const bf16*, float*, float*, const AdamW&, const Rounding&,
                            Index, Index);
template void rounded_adamw(float*, const float*, bf16*, bf16*, const AdamW&, const Rounding&,
                            Index, Index);

void rounded_decay(bf16* parameter, float factor, const Rounding& rounding, Index first,
                   Index count) {
  Words words;
  for_batches(first, count, [&](Index batch, Index place, Index offset, Index here) {
    bf16* __restrict p = parameter + offset;
    if (!rounding.stochastic) {
      for (Index i = 0; i < here; ++i) store(p[i], load(p[i]) * factor);
      return;
    }
    draw(rounding, kParameter, batch, words);
    for (Index i = 0; i < here; ++i) round_to<true>(p[i], load(p[i]) * factor, words.of[place + i]);
  });
}

}  // namespace hasten::ops::HASTEN_ISA
