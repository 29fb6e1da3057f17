// File: prepare/pass.h (internal)
// One call of Accelerator::backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "hasten/prepare/step.h"
#include "prepare/data_parallel.h"

namespace hasten {

inline bool has_16_bits(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

inline std::vector<at::Tensor> tensors_of(const Leaves& leaves) {
  std::vector<at::Tensor> tensors;
  for (const auto& [key, leaf] : leaves) tensors.push_back(leaf);
  return tensors;
}

struct Step::Pass {
  at::Tensor loss;
  double weight = 1;               // of this micro-batch
  bool by_items = false;           // the weight is a number of items
  std::vector<at::Tensor> inputs;  // empty: all leaves that the loss reaches
  bool inputs_of_user = false;     // the user gave them; they may be some of a model's parameters
  std::optional<bool> retain_graph;
  bool create_graph = false;

  // Returns the leaves that get gradients. Walks the graph if `inputs` is empty.
  Leaves leaves() const {
    if (inputs.empty()) return reached_leaves(loss);
    Leaves all;
    for (const at::Tensor& input : inputs) all.emplace(input.unsafeGetTensorImpl(), input);
    return all;
  }
};

}  // namespace hasten
