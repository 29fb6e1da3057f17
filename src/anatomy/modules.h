// File: anatomy/modules.h (internal)
// Which layer a tensor or an operation belongs to. LibTorch's C++ modules have no hooks, so an
// operation belongs to the layer whose parameters it reads; without parameters, to the layer that
// made what it reads; a product of what several layers made, as attention's are, to the module they
// are parts of; else to the layer before it. A node of the backward pass belongs to the layer of
// the operation that made it.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <set>
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

  // The module that has all of these layers as direct parts; -1 where there is none.
  std::int32_t shared_parent(const std::set<std::int32_t>& layers) const;

  // The forward pass has come to this layer.
  void enter(std::int32_t module, std::int64_t next_node);
  std::int32_t current() const { return current_; }
  void leave_model() { current_ = -1; }
  // The layer in whose forward pass the node with this number was made.
  std::int32_t of_node(std::int64_t node) const;

 private:
  std::int32_t number(const std::string& name);

  std::vector<std::string> names_;
  std::vector<std::int32_t> parents_;  // -1: the model
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::unordered_map<const void*, std::int32_t> owners_;
  std::vector<std::pair<std::int64_t, std::int32_t>> entered_;  // ascending numbers of nodes
  std::int32_t current_ = -1;
};

}  // namespace hasten::anatomy
