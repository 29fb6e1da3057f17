// File: prepare/tree_sum.h (internal)
// Sums a number of terms, which is a power of two, along a binary tree: neighbours first. Ranks
// that sum their own neighbouring terms here, and the results by tree_all_reduce
// (process/group/tree_all_reduce.h), get the same bits whatever number of ranks shares the terms.
//
//   TreeSum sum;
//   for (const auto& gradients : of_virtual_ranks) sum.add(gradients);   // (0 + 1) + (2 + 3)
//   const TensorList all = sum.take();
//
// A term is a list of tensors, of which undefined ones stand for zeros. Of n terms at most log2(n)
// + 1 are in memory at once. Thread rule: a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace hasten {

using TensorList = std::vector<at::Tensor>;

class TreeSum {
 public:
  // Adds a term, whose tensors may be changed.
  void add(TensorList term);
  // Returns the sum of the terms, and forgets them.
  TensorList take();
  void clear() { nodes_.clear(); }
  // The number of terms and sums in memory.
  std::size_t held() const { return nodes_.size(); }

 private:
  struct Node {
    TensorList sum;
    std::size_t terms;
  };
  std::vector<Node>
      nodes_;  // sums of terms that follow each other, each with fewer than the one before
};

// The same for numbers.
double tree_sum(std::vector<double> terms);

}  // namespace hasten
