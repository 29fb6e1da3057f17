// File: anatomy/modules.h (internal)
// Finds the layer of a tensor or an operation. LibTorch's C++ modules have no hooks, so an
// operation belongs to the first of these that applies: the module that the model names
// (models/running_module.h); the layer that owns the parameters which the operation reads; the
// layer that made its operands; for a product of results of several layers, as in attention, the
// module that has these layers as direct children; the layer before it. A node of the backward pass
// belongs to the layer of the operation that made it. Not synchronized.
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
  // Records the owner of each storage of the model's parameters and buffers.
  void watch(torch::nn::Module& model);

  // Returns the layer of that path, which need not own tensors, or the model for an empty path.
  std::int32_t layer_named(const std::string& path) {
    return index_of(path.empty() ? kModelName : path);
  }
  // Returns the layer that owns the storage, or -1.
  std::int32_t owner(const void* storage) const;
  // Returns the module's path in the model, or "" for -1.
  const std::string& name(std::int32_t module) const;

  // Returns the module that has these layers as direct children, or -1. It may be one of the
  // layers.
  std::int32_t shared_parent(const std::set<std::int32_t>& layers) const;

  // Records that the forward pass has reached this layer. `next_node` is the number of the next
  // autograd node.
  void enter(std::int32_t module, std::int64_t next_node);
  std::int32_t current() const { return current_; }
  void leave_model() { current_ = -1; }
  // Returns the layer whose forward pass made the node with this number, or -1.
  std::int32_t layer_of_node(std::int64_t node) const;

 private:
  inline static const std::string kModelName = "(model)";

  std::int32_t index_of(const std::string& name);

  std::vector<std::string> names_;
  std::vector<std::int32_t> parents_;  // by module; -1 means the model
  std::unordered_map<std::string, std::int32_t> indices_;
  std::unordered_map<const void*, std::int32_t> owners_;
  // The first node and the layer of each part of the forward pass, sorted by node.
  std::vector<std::pair<std::int64_t, std::int32_t>> entered_;
  std::int32_t current_ = -1;
};

}  // namespace hasten::anatomy
