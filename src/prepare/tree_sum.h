// File: prepare/tree_sum.h (internal)
// Sums terms along a binary tree, neighbours first. The number of terms must be a power of two. If
// ranks sum their own neighbouring terms here, and then the results with tree_all_reduce
// (process/group/tree_all_reduce.h), the bits do not depend on the number of ranks.
//
//   TreeSum sum;
//   for (const auto& gradients : of_virtual_ranks) sum.add(gradients);   // (0 + 1) + (2 + 3)
//   const TensorList all = sum.take();
//
// A term is a list of tensors. Undefined tensors count as zeros. For n terms, at most log2(n) + 1
// sums are in memory at once. Thread rule: a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace hasten {

using TensorList = std::vector<at::Tensor>;

class TreeSum {
 public:
  // Adds a term. The call may change its tensors.
  void add(TensorList term);
  // Returns the sum of the terms, and forgets them.
  TensorList take();
  void clear() { nodes_.clear(); }
  // The number of terms and sums in memory.
  std::size_t node_count() const { return nodes_.size(); }

 private:
  struct Node {
    TensorList sum;
    std::size_t terms;
  };
  std::vector<Node> nodes_;  // sums of consecutive terms, each of fewer terms than the one before
};

// The same for numbers.
double tree_sum(std::vector<double> terms);

}  // namespace hasten
