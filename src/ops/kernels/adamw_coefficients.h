// File: ops/kernels/adamw_coefficients.h (internal)
// The coefficients of a step of AdamW, which are the same for all elements. Each is rounded to
// float once.
//
//   const AdamWCoefficients step(options);
//   const float root = std::sqrt(v) * step.inverse_sqrt_correction2 + step.epsilon;
//   parameter[i] = parameter[i] * step.decay - step.step_size * m / root;
//
// Thread rule: a value.
#pragma once

#include <cmath>

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

struct AdamWCoefficients {
  HASTEN_INLINE explicit AdamWCoefficients(const AdamW& options)
      : decay(static_cast<float>(1.0 - options.learning_rate * options.weight_decay)),
        beta1(static_cast<float>(options.beta1)),
        beta2(static_cast<float>(options.beta2)),
        one_minus_beta1(static_cast<float>(1.0 - options.beta1)),
        one_minus_beta2(static_cast<float>(1.0 - options.beta2)),
        step_size(static_cast<float>(options.learning_rate / options.bias_correction1)),
        inverse_sqrt_correction2(static_cast<float>(1.0 / std::sqrt(options.bias_correction2))),
        epsilon(static_cast<float>(options.epsilon)),
        scale(options.gradient_scale) {}

  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inverse_sqrt_correction2,
      epsilon, scale;
};

}  // namespace hasten::ops::HASTEN_ISA
