// The layers of the transformers here. They only hold parameters, uninitialized until loaded or
// initialize()d: no random numbers are drawn for weights that a file overwrites.
#pragma once

#include <torch/torch.h>

#include "hasten/ops/ops.h"

namespace hasten {

// A linear layer with weight [out, in] and bias [out].
class Projection : public torch::nn::Module {
 public:
  Projection(std::int64_t in, std::int64_t out)
      : weight(register_parameter("weight", at::empty({out, in}))),
        bias(register_parameter("bias", at::empty({out}))) {}
  at::Tensor operator()(const at::Tensor& x) const { return ops::linear(x, weight, bias); }
  // Returns the product without the bias, which a later operation adds.
  at::Tensor product(const at::Tensor& x) const { return ops::linear(x, weight, {}); }

  at::Tensor weight, bias;
};

// A layer normalization with weight [n] and bias [n].
class Norm : public torch::nn::Module {
 public:
  Norm(std::int64_t n, double epsilon)
      : weight(register_parameter("weight", at::empty({n}))),
        bias(register_parameter("bias", at::empty({n}))),
        epsilon(epsilon) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
  }

  at::Tensor weight, bias;
  double epsilon;
};

// An embedding table with weight [rows, n].
class EmbeddingTable : public torch::nn::Module {
 public:
  EmbeddingTable(std::int64_t rows, std::int64_t n)
      : weight(register_parameter("weight", at::empty({rows, n}))) {}

  at::Tensor weight;
};

// Adds the bias and applies the activation, named as in transformers.
inline at::Tensor activate(const std::string& name, const at::Tensor& x, const at::Tensor& bias) {
  if (name == "gelu") return ops::bias_gelu(x, bias);
  const at::Tensor u = x + bias;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(u, "tanh");
  if (name == "relu") return at::relu(u);
  if (name == "tanh") return at::tanh(u);
  return at::silu(u);
}

}  // namespace hasten
