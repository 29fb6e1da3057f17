// File: optim/zero_grad.h (internal)
// Clears gradients that a reducer may have put into its buckets. Thread rule: as the optimizer's.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <vector>

namespace hasten {

// Clears the gradients as Optimizer::zero_grad does, but without its detach_(), which gradients in
// a reducer's buckets do not allow.
void zero_grad(torch::optim::Optimizer& optimizer, bool set_to_none = true);
void zero_grad(const std::vector<at::Tensor>& parameters, bool set_to_none = true);

}  // namespace hasten
