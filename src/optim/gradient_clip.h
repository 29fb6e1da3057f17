// File: optim/gradient_clip.h (internal)
// Clips the gradients of a step to max_grad_norm.
//
//   const DeferredScalar norm = clip_gradients(trained, optimizer, {.max_norm = 1.0});
//
// Thread rule: that of the gradients.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "hasten/device/detail/deferred_scalar.h"

namespace hasten {

struct GradientClip {
  double max_norm = 0;      // 0 leaves the gradients as they are
  bool on_device = false;   // norm and factor stay on the device until the norm is used
  bool has_readers = true;  // something reads the gradients before the optimizer steps
};

// Returns the norm before clipping. If nothing else reads the gradients, an optimizer that supports
// it scales them in its step, which saves a pass over memory.
DeferredScalar clip_gradients(const std::vector<at::Tensor>& trained,
                              torch::optim::Optimizer& optimizer, const GradientClip& clip);

}  // namespace hasten
