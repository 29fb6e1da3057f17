// File: ops/kernels/adamw_numbers.h (internal)
// The numbers of a step of AdamW that are the same for all elements, each rounded to float once.
//
//   const AdamWNumbers step(options);
//   parameter[i] = parameter[i] * step.decay - step.size * m / (std::sqrt(v) * step.root + step.epsilon);
//
// Thread rule: a value.
#pragma once

#include <cmath>

#include "ops/kernels/math.h"

namespace hasten::ops::HASTEN_ISA {

struct AdamWNumbers {
  HASTEN_INLINE explicit AdamWNumbers(const AdamW& options)
      : decay(static_cast<float>(1.0 - options.learning_rate * options.weight_decay)),
        beta1(static_cast<float>(options.beta1)),
        beta2(static_cast<float>(options.beta2)),
        rest1(static_cast<float>(1.0 - options.beta1)),
        rest2(static_cast<float>(1.0 - options.beta2)),
        size(static_cast<float>(options.learning_rate / options.bias_correction1)),
        root(static_cast<float>(1.0 / std::sqrt(options.bias_correction2))),
        epsilon(static_cast<float>(options.epsilon)),
        scale(options.gradient_scale) {}

  float decay, beta1, beta2, rest1, rest2, size, root, epsilon, scale;
};

}  // namespace hasten::ops::HASTEN_ISA
