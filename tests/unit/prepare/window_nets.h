// Small networks and batches for tests of accumulation windows.
//
//   const auto net = std::make_shared<LinearNet>(3, 1);
//   loss_of(net->forward(batch(0))).backward();
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "prepare/accelerator_state.h"

namespace hasten::window_nets {

using torch::optim::SGDOptions;

using torch::nn::Linear;

// One module under two names, as in siamese networks and tied decoders.
struct SiameseModel : torch::nn::Module {
  SiameseModel() {
    torch::manual_seed(1);
    branch = register_module("left", Linear(2, 2));
    register_module("right", branch);
  }
  at::Tensor forward(const at::Tensor& x) { return branch(branch(x)); }
  std::vector<at::Tensor> unique_parameters() const { return {branch->weight, branch->bias}; }
  Linear branch{nullptr};
};

struct LinearNet : torch::nn::Module {
  LinearNet(std::int64_t in, std::int64_t out) {
    torch::manual_seed(in + 10 * out);
    layer = register_module("layer", Linear(in, out));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  Linear layer{nullptr};
};

// Computes a loss in bfloat16. The gradient of its weight is the factor.
struct Scale : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({1}));
  at::Tensor forward(double factor) { return (weight.to(at::kBFloat16) * factor).sum(); }
};

inline at::Tensor batch(int i, std::int64_t width = 3) {
  torch::manual_seed(100 + i);
  return torch::randn({4, width});
}

inline at::Tensor loss_of(const at::Tensor& out) { return out.square().mean(); }

inline bool close(const at::Tensor& got, const at::Tensor& expected) {
  return got.defined() && at::allclose(got, expected, 1e-5, 1e-6);
}

// Captures standard error in its scope.
class CapturedStandardError {
 public:
  CapturedStandardError() : before_(std::cerr.rdbuf(text_.rdbuf())) {}
  ~CapturedStandardError() { std::cerr.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

// The mean gradient over some batches, computed with plain LibTorch.
inline at::Tensor mean_gradient(const std::vector<int>& batches) {
  const auto net = std::make_shared<LinearNet>(3, 1);
  for (const int i : batches)
    (loss_of(net->forward(batch(i))) / static_cast<double>(batches.size())).backward();
  return net->layer->weight.grad();
}

}  // namespace hasten::window_nets
