// File: optim/distinct.h (internal)
// Removes repetitions from lists of tensors. If a tensor or module is registered under two names,
// LibTorch's parameters() lists it twice and Python's lists it once. Such a tensor would be
// multiplied, counted or stepped twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

namespace hasten {

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

// Returns the tensors that are not in `seen`, in order, and adds them to it. If several lists use
// one set, each tensor stays in the first list that has it.
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
