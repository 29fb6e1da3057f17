// Helpers for tests with several processes. A failed check throws in its process, which fails the
// test.
#pragma once

#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/base/text.h"

namespace hasten::multiprocess_checks {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

inline void require_close(const std::vector<at::Tensor>& got,
                          const std::vector<at::Tensor>& expected, const std::string& what,
                          double tolerance = 1e-6) {
  require(got.size() == expected.size(), what + ": the numbers of tensors differ");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double max_difference = (got[i] - expected[i]).abs().max().item<double>();
    require(max_difference <= tolerance, str(what, ": tensor ", i, " differs by ", max_difference));
  }
}

}  // namespace hasten::multiprocess_checks
