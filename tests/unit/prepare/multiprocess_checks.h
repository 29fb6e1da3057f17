// Helpers for tests with several processes. A failed check throws in its process, which fails the
// test.
#pragma once

#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/process/group.h"

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

// Throws unless each tensor has the same bits in all processes. A collective.
inline void require_same_on_all_ranks(const Group& group, const std::vector<at::Tensor>& tensors,
                                      const std::string& what) {
  for (const at::Tensor& tensor : tensors) {
    require(tensor.defined(), what + ": there is no gradient");
    const at::Tensor all = group.gather(tensor.detach().flatten().unsqueeze(0));
    require(at::equal(all, all[0].unsqueeze(0).expand_as(all)),
            what + " differs between processes");
  }
}

}  // namespace hasten::multiprocess_checks
