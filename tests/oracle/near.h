// Compares a tensor with the one that Python recorded.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "device.h"

namespace hasten::oracle {

// The tolerance is relative to 1 plus the largest number. It is needed for other processors: on a
// processor like the one that recorded the data, many tensors are equal.
inline void check_near(const std::string& what, const at::Tensor& tensor,
                       const at::Tensor& expected, double relative) {
  CAPTURE(what);
  REQUIRE(tensor.defined());
  REQUIRE(tensor.sizes() == expected.sizes());
  REQUIRE(tensor.dtype() == expected.dtype());
  const at::Tensor found = tensor.detach().cpu();
  if (at::equal(found, expected)) return;
  const double difference = (found - expected).abs().max().item<double>();
  const double tolerance = tested::limit(relative) * (1 + expected.abs().max().item<double>());
  CHECK(difference <= tolerance);
}

}  // namespace hasten::oracle
