// The usual options of a step of AdamW, for tests of its kernels.
//
//   const ops::AdamW options = adamw_options({.step = 2, .gradient_scale = 0.5f});
#pragma once

#include <cmath>

#include "ops/kernels/kernels.h"

namespace hasten::ops {

struct AdamWCase {
  int step = 1;
  float gradient_scale = 1;
};

inline AdamW adamw_options(const AdamWCase& of) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  return {.learning_rate = 0.01,
          .beta1 = kBeta1,
          .beta2 = kBeta2,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .bias_correction1 = 1 - std::pow(kBeta1, of.step),
          .bias_correction2 = 1 - std::pow(kBeta2, of.step),
          .gradient_scale = of.gradient_scale};
}

}  // namespace hasten::ops
