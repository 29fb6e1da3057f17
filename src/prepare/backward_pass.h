// File: prepare/backward_pass.h (internal)
// One call of Accelerator::backward, and the leaves of an autograd graph.
//
//   const BackwardPass pass{.loss = loss, .weight = 32, .by_items = true};
//   for (const at::Tensor& leaf : tensors_of(pass.leaves())) clear(leaf);
//
// Thread rule: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace hasten {

// Leaf tensors, by their TensorImpl.
using Leaves = std::unordered_map<const c10::TensorImpl*, at::Tensor>;
// Returns the leaves that a backward pass of the loss reaches.
Leaves reached_leaves(const at::Tensor& loss);
std::vector<at::Tensor> tensors_of(const Leaves& leaves);

bool has_16_bits(const at::Tensor& tensor);

struct BackwardPass {
  at::Tensor loss;
  double weight = 1;               // of this micro-batch
  bool by_items = false;           // the weight is a number of items
  std::vector<at::Tensor> inputs;  // empty means all leaves that the loss reaches
  bool inputs_of_user = false;     // true if the user gave `inputs`, perhaps a part of a model
  std::optional<bool> retain_graph;
  bool create_graph = false;
  double scale = 1;  // multiplies the loss, so that its gradients do not become 0 in float16

  // Returns the leaves that get gradients. Walks the graph if `inputs` is empty.
  Leaves leaves() const;
};

}  // namespace hasten
