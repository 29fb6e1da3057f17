#include "optim/gradient_clip.h"

#include "hasten/optim/gradients.h"

namespace hasten {
namespace {

// `norm` is a number or a tensor of one element.
template <class Norm>
DeferredScalar clip_to(const Norm& norm, const std::vector<at::Tensor>& trained,
                       torch::optim::Optimizer& optimizer, const GradientClip& clip) {
  if (clip.max_norm > 0) {
    const Norm factor = clip_factor(norm, clip.max_norm);
    auto* const folding =
        clip.has_readers ? nullptr : dynamic_cast<GradientScalingOptimizer*>(&optimizer);
    if (folding != nullptr) {
      folding->scale_next_step(factor);
    } else {
      scale_gradients_(trained, factor);
    }
  }
  return DeferredScalar(norm);
}

}  // namespace

DeferredScalar clip_gradients(const std::vector<at::Tensor>& trained,
                              torch::optim::Optimizer& optimizer, const GradientClip& clip) {
  return clip.on_device ? clip_to(gradient_norm_on_device(trained), trained, optimizer, clip)
                        : clip_to(gradient_norm(trained), trained, optimizer, clip);
}

}  // namespace hasten
