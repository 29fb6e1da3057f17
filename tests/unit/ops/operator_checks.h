// Compares an operator with a reference: its result and its gradients.
//
//   const Tensor x = leaf({3, 4}), b = leaf({4});
//   check_same(ops::bias_gelu(x, b), at::gelu(x + b), {x, b}, 1e-6);
#pragma once

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <time.h>
#include <torch/torch.h>

#include <vector>

#include "hasten/ops/ops.h"

namespace hasten::operator_checks {

using at::Tensor;

inline Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

inline double distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Returns the gradients of sum(y * weights) with respect to each input.
inline std::vector<Tensor> gradients(const Tensor& y, const Tensor& weights,
                                     const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({(y * weights).sum()}, inputs);
}

inline void check_same(const Tensor& fused, const Tensor& reference,
                       const std::vector<Tensor>& inputs, double tolerance) {
  CHECK(distance(fused, reference) <= tolerance);
  const Tensor weights = at::randn(fused.sizes());
  const auto a = gradients(fused, weights, inputs), b = gradients(reference, weights, inputs);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(a[i], b[i]) <= tolerance * (1 + b[i].abs().max().item<double>()));
  }
}

}  // namespace hasten::operator_checks
