// The state that a call with dropout saves for its backward pass: the seed and the probability
// instead of a mask.
#pragma once

#include <torch/torch.h>

#include "ops/kernels/kernels.h"
#include "ops/random.h"

namespace hasten::ops {

struct DropoutState {
  std::int64_t seed = 0;
  double p = 0;  // 0: nothing is dropped.

  Dropout kernel_options() const { return Dropout::make(p, static_cast<std::uint64_t>(seed)); }
};

// Draws a seed only if something can be dropped.
inline DropoutState draw_dropout(double p, bool training) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout: got probability ", p, ", expected [0, 1]");
  if (!training || p == 0) return {};
  return {.seed = static_cast<std::int64_t>(next_seed()), .p = p};
}

inline void save(torch::autograd::AutogradContext* context, const DropoutState& dropout) {
  context->saved_data["seed"] = dropout.seed;
  context->saved_data["p"] = dropout.p;
}

// Throws, like LibTorch, if an earlier backward pass has freed the graph.
inline DropoutState saved_dropout(torch::autograd::AutogradContext* context) {
  context->get_saved_variables();
  return {.seed = context->saved_data["seed"].toInt(), .p = context->saved_data["p"].toDouble()};
}

// Returns x with these decisions applied to its rows, differentiable any number of times. x has at
// least one dimension and fits the row kernels (ops/cpu.h).
at::Tensor apply_dropout(const at::Tensor& x, const DropoutState& dropout);

}  // namespace hasten::ops
