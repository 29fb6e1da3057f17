// AdamW and Lion with moments in 8 bits (Dettmers et al. 2021, "8-bit Optimizers via Block-wise
// Quantization") or in float. A block is decoded, moved towards its gradient, used for the step and
// encoded again while it is in the first-level cache. The step uses the numbers before they are
// encoded.
#include "ops/kernels/block_moments.h"

#include <cmath>

#include "ops/kernels/adamw_coefficients.h"
#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {
namespace {

using Numbers = float[kMomentBlock];

HASTEN_INLINE void decode(const Moment& moment, Index first, float* __restrict out, Index count) {
  const float scale = moment.scales[first / kMomentBlock];
  const std::uint8_t* __restrict codes = moment.codes + first;
  const float* __restrict values = moment.book->value;
  for (Index i = 0; i < count; ++i) {
    const std::int32_t code = codes[i];
    out[i] = values[code] * scale;
  }
}

// Returns the code of the nearest number. For a number that is not finite the code is arbitrary.
HASTEN_INLINE std::int32_t code_of(const std::int32_t* __restrict buckets, float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const bool is_negative = (bits >> 31) != 0;
  const std::int32_t above =
      static_cast<std::int32_t>((bits & 0x7FFFFFFFu) >> 16) - Codebook::kFirstBucket;
  const std::int32_t last = Codebook::kBuckets - 1;
  const std::int32_t bucket = above < 0 ? 0 : (above > last ? last : above);
  const std::int32_t entry = buckets[bucket + (is_negative ? 0 : Codebook::kBuckets)];
  const std::int32_t limit = entry & ((1 << Codebook::kLimitBits) - 1);
  const std::int32_t step = static_cast<std::int32_t>(bits & 0xFFFFu) >= limit ? 1 : 0;
  return (entry >> Codebook::kLimitBits) + (is_negative ? -step : step);
}

HASTEN_INLINE void encode(const Moment& moment, Index first, const float* __restrict numbers,
                          Index count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (Index i = 0; i < count; ++i) {
    const float magnitude = std::fabs(numbers[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  moment.scales[first / kMomentBlock] = largest;
  std::uint8_t* __restrict codes = moment.codes + first;
  if (largest == 0) {  // as in a new state
    for (Index i = 0; i < count; ++i) codes[i] = 0;
    return;
  }
  alignas(64) std::int32_t wide[kMomentBlock];
  const std::int32_t* __restrict buckets = moment.book->bucket;
  for (Index i = 0; i < count; ++i) wide[i] = code_of(buckets, numbers[i] / largest);
  for (Index i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(wide[i]);
}

bool is_zero(const Moment& moment, Index first, Index count) {
  if (moment.numbers == nullptr) return moment.scales[first / kMomentBlock] == 0;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += moment.numbers[first + i] != 0 ? 1.0f : 0.0f;
  return sum == 0;
}

template <class T>
void decay_block(T* __restrict parameter, float factor, Index count) {
  for (Index i = 0; i < count; ++i) store(parameter[i], load(parameter[i]) * factor);
}

struct AdamWStep : AdamWCoefficients {
  using AdamWCoefficients::AdamWCoefficients;

  template <class T>
  HASTEN_INLINE void run(T* __restrict parameter, const T* __restrict gradient, float* __restrict m,
                         float* __restrict v, Index count) const {
    for (Index i = 0; i < count; ++i) {
      const float g = gradient ? load(gradient[i]) * scale : 0.0f;
      const float mean = m[i] * beta1 + one_minus_beta1 * g;
      const float square = v[i] * beta2 + one_minus_beta2 * g * g;
      m[i] = mean;
      v[i] = square;
      const float update = mean / (std::sqrt(square) * inverse_sqrt_correction2 + epsilon);
      store(parameter[i], load(parameter[i]) * decay - step_size * update);
    }
  }
};

template <class T>
void adamw_blocks(T* parameter, const T* gradient, const Moment& exp_avg, const Moment& exp_avg_sq,
                  const AdamW& options, Index count) {
  const AdamWStep step(options);
  alignas(64) Numbers means, squares;
  for (Index first = 0; first < count; first += kMomentBlock) {
    const Index n = count - first < kMomentBlock ? count - first : kMomentBlock;
    T* const p = parameter + first;
    if (gradient == nullptr && step.epsilon > 0 && is_zero(exp_avg, first, n) &&
        is_zero(exp_avg_sq, first, n)) {
      decay_block(p, step.decay, n);
      continue;
    }
    float* const m = exp_avg.numbers ? exp_avg.numbers + first : means;
    float* const v = exp_avg_sq.numbers ? exp_avg_sq.numbers + first : squares;
    if (!exp_avg.numbers) decode(exp_avg, first, m, n);
    if (!exp_avg_sq.numbers) decode(exp_avg_sq, first, v, n);
    if (gradient) {
      step.run(p, gradient + first, m, v, n);
    } else {
      step.run(p, static_cast<const T*>(nullptr), m, v, n);
    }
    if (!exp_avg.numbers) encode(exp_avg, first, m, n);
    if (!exp_avg_sq.numbers) encode(exp_avg_sq, first, v, n);
  }
}

struct LionStep {
  explicit LionStep(const Lion& options)
      : decay(static_cast<float>(1.0 - options.learning_rate * options.weight_decay)),
        beta1(static_cast<float>(options.beta1)),
        beta2(static_cast<float>(options.beta2)),
        one_minus_beta1(static_cast<float>(1.0 - options.beta1)),
        one_minus_beta2(static_cast<float>(1.0 - options.beta2)),
        step_size(static_cast<float>(options.learning_rate)) {}

  template <class T>
  HASTEN_INLINE void run(T* __restrict parameter, const T* __restrict gradient, float* __restrict m,
                         Index count) const {
    for (Index i = 0; i < count; ++i) {
      const float g = gradient ? load(gradient[i]) : 0.0f;
      const float mix = m[i] * beta1 + one_minus_beta1 * g;
      const float sign = mix > 0 ? 1.0f : (mix < 0 ? -1.0f : mix);  // keeps 0 and NaN
      m[i] = m[i] * beta2 + one_minus_beta2 * g;
      store(parameter[i], load(parameter[i]) * decay - step_size * sign);
    }
  }

  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size;
};

template <class T>
void lion_blocks(T* parameter, const T* gradient, const Moment& exp_avg, const Lion& options,
                 Index count) {
  const LionStep step(options);
  alignas(64) Numbers means;
  for (Index first = 0; first < count; first += kMomentBlock) {
    const Index n = count - first < kMomentBlock ? count - first : kMomentBlock;
    T* const p = parameter + first;
    if (gradient == nullptr && is_zero(exp_avg, first, n)) {
      decay_block(p, step.decay, n);
      continue;
    }
    float* const m = exp_avg.numbers ? exp_avg.numbers + first : means;
    if (!exp_avg.numbers) decode(exp_avg, first, m, n);
    if (gradient) {
      step.run(p, gradient + first, m, n);
    } else {
      step.run(p, static_cast<const T*>(nullptr), m, n);
    }
    if (!exp_avg.numbers) encode(exp_avg, first, m, n);
  }
}

}  // namespace

void step_adamw(float* parameter, const float* gradient, const Moment& exp_avg,
                const Moment& exp_avg_sq, const AdamW& options, Index count) {
  adamw_blocks(parameter, gradient, exp_avg, exp_avg_sq, options, count);
}
void step_adamw(bf16* parameter, const bf16* gradient, const Moment& exp_avg,
                const Moment& exp_avg_sq, const AdamW& options, Index count) {
  adamw_blocks(parameter, gradient, exp_avg, exp_avg_sq, options, count);
}
void step_lion(float* parameter, const float* gradient, const Moment& exp_avg, const Lion& options,
               Index count) {
  lion_blocks(parameter, gradient, exp_avg, options, count);
}
void step_lion(bf16* parameter, const bf16* gradient, const Moment& exp_avg, const Lion& options,
               Index count) {
  lion_blocks(parameter, gradient, exp_avg, options, count);
}

}  // namespace hasten::ops::HASTEN_ISA
