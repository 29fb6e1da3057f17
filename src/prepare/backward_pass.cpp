#include "prepare/backward_pass.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <unordered_set>

namespace hasten {

Leaves reached_leaves(const at::Tensor& loss) {
  Leaves leaves;
  if (!loss.grad_fn() && loss.requires_grad()) leaves.emplace(loss.unsafeGetTensorImpl(), loss);
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.emplace(leaf->variable.unsafeGetTensorImpl(), leaf->variable);
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return leaves;
}

std::vector<at::Tensor> tensors_of(const Leaves& leaves) {
  std::vector<at::Tensor> tensors;
  for (const auto& [key, leaf] : leaves) tensors.push_back(leaf);
  return tensors;
}

bool has_16_bits(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

Leaves BackwardPass::leaves() const {
  if (inputs.empty()) return reached_leaves(loss);
  Leaves all;
  for (const at::Tensor& input : inputs) all.emplace(input.unsafeGetTensorImpl(), input);
  return all;
}

}  // namespace hasten
