// What a call with dropout keeps for its backward pass: the decisions' seed and rate instead of a
// mask.
#pragma once

#include <torch/torch.h>

#include "ops/kernels/kernels.h"
#include "ops/random.h"

namespace hasten::ops {

// The decisions of one call; draws a seed only where something is dropped.
inline Dropout decisions(double p, bool training) {
  TORCH_CHECK(p >= 0 && p < 1, "dropout: got probability ", p, ", expected [0, 1)");
  return training && p > 0 ? Dropout::make(p, next_seed()) : Dropout{};
}

inline void save(torch::autograd::AutogradContext* context, const Dropout& dropout) {
  context->saved_data["seed"] = static_cast<std::int64_t>(dropout.seed);
  context->saved_data["threshold"] = static_cast<std::int64_t>(dropout.threshold);
  context->saved_data["dropout_scale"] = static_cast<double>(dropout.scale);
}

inline Dropout saved(torch::autograd::AutogradContext* context) {
  return {.seed = static_cast<std::uint64_t>(context->saved_data["seed"].toInt()),
          .threshold = static_cast<std::uint32_t>(context->saved_data["threshold"].toInt()),
          .scale = static_cast<float>(context->saved_data["dropout_scale"].toDouble())};
}

}  // namespace hasten::ops
