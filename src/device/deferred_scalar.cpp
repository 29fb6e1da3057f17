#include "hasten/device/detail/deferred_scalar.h"

#include <torch/torch.h>

namespace hasten {

double DeferredScalar::value() const {
  if (on_device_.defined()) {
    value_ = on_device_.to(at::kCPU).to(at::kDouble).item<double>();
    on_device_.reset();
  }
  return value_;
}

}  // namespace hasten
