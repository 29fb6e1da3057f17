// File: anatomy/modules.h (internal)
// Which layer a tensor or an operation belongs to. LibTorch's C++ modules have no hooks, so an
// operation belongs to the layer whose parameters it reads, and what follows it without parameters
// of its own to the same one; a node of the backward pass to the layer of the operation that made
// it.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hasten::anatomy {

class Modules {
 public:
  // Takes the parameters and buffers of a model: storage -> number of the layer.
  void watch(torch::nn::Module& model);

  // -1: no layer's.
  std::int32_t owner(const void* storage) const;
  const std::string& name(std::int32_t module) const;

  // The forward pass has come to this layer.
  void enter(std::int32_t module, std::int64_t next_node);
  std::int32_t current() const { return current_; }
  void leave_model() { current_ = -1; }
  // The layer in whose forward pass the node with this number was made.
  std::int32_t of_node(std::int64_t node) const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<const void*, std::int32_t> owners_;
  std::vector<std::pair<std::int64_t, std::int32_t>> entered_;  // ascending numbers of nodes
  std::int32_t current_ = -1;
};

}  // namespace hasten::anatomy
