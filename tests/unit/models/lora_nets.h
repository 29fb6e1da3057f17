// Networks for tests of adapters.
//
//   const auto net = new_net();
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/bert.h"
#include "hasten/models/linear_layers.h"

namespace hasten::lora_nets {

namespace nn = torch::nn;

// A linear layer that a user wrote.
struct OwnLinear : nn::Module, LinearLayers {
  at::Tensor weight = register_parameter("weight", torch::randn({5, 6}));
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight.t()); }
  std::vector<LinearLayer> linear_layers() const override { return {{}}; }
  void set_linear_weight(const std::string&, const at::Tensor& tensor) override { weight = tensor; }
};

// A model that a user wrote: LibTorch's layers, one of them in a Sequential, and a custom layer.
struct UserNet : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(own->forward(blocks->forward(at::gelu(first(x)))));
  }
  nn::Linear first = register_module("first", nn::Linear(4, 7));
  nn::Sequential blocks = register_module(
      "blocks", nn::Sequential(nn::Linear(nn::LinearOptions(7, 6).bias(false)), nn::Tanh()));
  std::shared_ptr<OwnLinear> own = register_module("own", std::make_shared<OwnLinear>());
  nn::Linear last = register_module("last", nn::Linear(5, 3));
};

inline std::shared_ptr<UserNet> new_net() {
  torch::manual_seed(3);
  return std::make_shared<UserNet>();
}

// Fills every B with random numbers. An adapter with a zero B changes nothing.
inline void fill_b(const nn::Module& module) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters())
    if (item.key().ends_with("lora_B.weight")) at::Tensor(item.value()).normal_(0, 0.5);
}

inline at::Tensor value_of(const nn::Module& module, const std::string& name) {
  return module.named_parameters()[name];
}

// Returns the weight with the adapter's product added.
inline at::Tensor adapted_weight(const nn::Module& module, const std::string& layer, double scale) {
  return value_of(module, layer + ".weight").detach().clone() +
         scale * at::mm(value_of(module, layer + ".lora_B.weight"),
                        value_of(module, layer + ".lora_A.weight"));
}

inline at::Tensor expected_output(const UserNet& net, const at::Tensor& x, double scale) {
  const auto weight = [&](const char* layer) { return adapted_weight(net, layer, scale); };
  at::Tensor y = at::gelu(at::linear(x, weight("first"), value_of(net, "first.bias")));
  y = at::tanh(at::linear(y, weight("blocks.0")));
  return at::linear(at::linear(y, weight("own")), weight("last"), value_of(net, "last.bias"));
}

inline bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5) {
  return (a - b).abs().max().item<double>() <= tolerance;
}

}  // namespace hasten::lora_nets
