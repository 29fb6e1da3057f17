// File: optim/closure.h (internal)
// Calls the closure that may be passed to a step of an optimizer.
//
//   const torch::NoGradGuard no_grad;
//   const at::Tensor loss = call_closure(closure);
//
// Thread rule: that of the optimizer.
#pragma once

#include <torch/torch.h>

namespace hasten {

// Calls the closure with gradients enabled. Returns its loss, or an undefined tensor if there is no
// closure.
inline at::Tensor call_closure(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_grad(true);
  return closure();
}

}  // namespace hasten
