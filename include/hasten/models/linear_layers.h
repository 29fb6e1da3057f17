// File: hasten/models/linear_layers.h
// The interface of a module that computes with the weights of linear layers, so that add_lora
// (hasten/models/lora.h) can adapt them. hasten recognizes torch::nn::Linear, the layers of its own
// models and exported programs. Your own linear layer derives from it:
//
//   struct MyLinear : torch::nn::Module, LinearLayers {
//     at::Tensor weight = register_parameter("weight", at::empty({3, 2}));
//     at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }
//     std::vector<LinearLayer> linear_layers() const override { return {{}}; }
//     void set_linear_weight(const std::string&, const at::Tensor& tensor) override { weight = tensor; }
//   };
//
// The forward pass has to multiply by the weight with linear, matmul, mm or addmm. The weight, or
// its transpose, must be the right operand. add_lora() throws what these functions throw. Thread
// rule: the same as for the module.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

struct LinearLayer {
  // The path from this module to the module that has registered the parameter "weight"; empty for
  // this module itself.
  std::string path = {};
  // True if the weight is [in, out], as in GPT-2's Conv1D, and not [out, in].
  bool is_transposed = false;
};

class HASTEN_API LinearLayers {
 public:
  virtual ~LinearLayers() = default;
  virtual std::vector<LinearLayer> linear_layers() const = 0;
  // Replaces the handles of the layer's weight that the forward pass uses.
  virtual void set_linear_weight(const std::string& path, const at::Tensor& weight) = 0;
};

}  // namespace hasten
