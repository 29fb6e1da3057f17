// File: optim/distinct.h (internal)
// Each tensor of a list once. A module or a tensor that is registered under two names is listed
// under both by LibTorch's parameters(), where Python's lists it once; what is multiplied, counted
// or stepped by such a list would be so twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

namespace hasten {

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

// Without the tensors that the set has already, in their order; the set grows by those that are
// returned. One set for several lists keeps each tensor in the first list that has it.
inline std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors, TensorSet& seen) {
  std::vector<at::Tensor> once;
  once.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) once.push_back(tensor);
  }
  return once;
}

inline std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  TensorSet seen;
  return distinct(tensors, seen);
}

}  // namespace hasten
