// File: ops/dropout_state.h (internal)
// The state that a call with dropout saves for its backward pass: the seed and the probability
// instead of a mask.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "ops/kernels/kernels.h"
#include "ops/random.h"
#include "ops/step_seeds.h"

namespace hasten::ops {

struct DropoutState {
  std::int64_t seed = 0;
  double p = 0;  // 0 means that nothing is dropped.
  // The slot of the seed on the device while a graph is recorded (ops/step_seeds.h), otherwise
  // unset. The kernels of the graph read the seed there in each replay.
  std::optional<at::Tensor> seed_at = std::nullopt;

  Dropout kernel_options() const { return Dropout::make(p, static_cast<std::uint64_t>(seed)); }
};

// Returns the options of a kernel of the CPU. The kernel reads the seed from `seed_at` if it is
// set.
inline Dropout dropout_options(std::int64_t seed, double p,
                               const std::optional<at::Tensor>& seed_at) {
  return DropoutState{.seed = seed_at ? *seed_at->const_data_ptr<std::int64_t>() : seed, .p = p}
      .kernel_options();
}

// Draws a seed only if something can be dropped.
inline DropoutState draw_dropout(double p, bool training) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout: got probability ", p, ", expected [0, 1]");
  if (!training || p == 0) return {};
  const auto seed = static_cast<std::int64_t>(next_seed());
  return {.seed = seed, .p = p, .seed_at = StepSeeds::recorded_slot_of(seed)};
}

inline void save(torch::autograd::AutogradContext* context, const DropoutState& dropout) {
  context->saved_data["seed"] = dropout.seed;
  context->saved_data["p"] = dropout.p;
  if (dropout.seed_at) context->saved_data["seed_at"] = *dropout.seed_at;
}

// Throws, like LibTorch, if an earlier backward pass has freed the graph.
inline DropoutState saved_dropout(torch::autograd::AutogradContext* context) {
  context->get_saved_variables();
  DropoutState dropout{.seed = context->saved_data["seed"].toInt(),
                       .p = context->saved_data["p"].toDouble()};
  const auto place = context->saved_data.find("seed_at");
  if (place != context->saved_data.end()) dropout.seed_at = place->second.toTensor();
  return dropout;
}

// Returns x with these decisions applied to its rows, differentiable any number of times. x has at
// least one dimension and fits the row kernels (ops/cpu.h).
at::Tensor apply_dropout(const at::Tensor& x, const DropoutState& dropout);

}  // namespace hasten::ops
