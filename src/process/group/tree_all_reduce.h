// File: process/group/tree_all_reduce.h (internal)
// Sums tensors over the ranks along a binary tree of the ranks, ((0 + 1) + (2 + 3)) + ..., so that
// the bits of the sum do not depend on how the ranks are connected. The number of ranks is a power
// of two.
//
//   TreeAllReduce all_reduce(group);
//   all_reduce.sum(gradients);   // a collective
//
// The numbers are copied into a buffer, which is summed when it is full. Ranks that share memory
// sum it in place. Other ranks exchange messages: each rank receives one share of the numbers of
// every rank and adds them up, and the sums are gathered. Thread rule: that of the group's
// collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

class TreeAllReduce {
 public:
  explicit TreeAllReduce(Group group, std::int64_t buffer_bytes = std::int64_t{25} << 20);

  // Replaces each tensor by the sum over the ranks. The tensors are on the CPU, contiguous, and of
  // types with 32 or more bits, because 16 bits would round each sum.
  void sum(const std::vector<at::Tensor>& tensors);

 private:
  void sum_of_type(const std::vector<at::Tensor>& tensors, at::ScalarType type);
  at::Tensor buffer_of(at::ScalarType type);
  void sum_buffer(const at::Tensor& buffer, std::int64_t count);
  void sum_by_messages(at::Tensor used);

  Group group_;
  std::int64_t buffer_bytes_;
  bool shares_memory_ = false;
  std::map<at::ScalarType, at::Tensor> buffers_;
};

}  // namespace hasten
