// Compares a tensor with the one that Python has recorded.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

namespace hasten::oracle {

// The tolerance is relative to 1 plus the largest number. It is for other processors: on one like that
// of the data many tensors are equal.
inline void check_near(const std::string& what, const at::Tensor& tensor,
                       const at::Tensor& expected, double relative) {
  CAPTURE(what);
  REQUIRE(tensor.defined());
  REQUIRE(tensor.sizes() == expected.sizes());
  REQUIRE(tensor.dtype() == expected.dtype());
  if (at::equal(tensor.detach(), expected)) return;
  const double difference = (tensor.detach() - expected).abs().max().item<double>();
  const double tolerance = relative * (1 + expected.abs().max().item<double>());
  CHECK(difference <= tolerance);
}

}  // namespace hasten::oracle
