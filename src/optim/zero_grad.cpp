#include "optim/zero_grad.h"

namespace hasten {

void zero_grad(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      gradient.detach().zero_();
    }
  }
}

void zero_grad(torch::optim::Optimizer& optimizer, bool set_to_none) {
  for (const auto& group : optimizer.param_groups()) zero_grad(group.params(), set_to_none);
}

}  // namespace hasten
