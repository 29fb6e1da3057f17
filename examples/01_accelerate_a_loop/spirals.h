// The data and the network that plain.cpp and accelerated.cpp share.
#pragma once

#include <torch/torch.h>

// Points of two spirals in the plane, with noise: rows {x, y}, and the number of the spiral, 0 or
// 1.

class Spirals : public torch::data::datasets::Dataset<Spirals> {
 public:
  explicit Spirals(std::int64_t rows) {
    const torch::Tensor turn = torch::rand({rows}).sqrt() * 7.0,
                        which = torch::randint(0, 2, {rows});
    const torch::Tensor angle = turn + which * M_PI;
    points_ = torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 4.0 +
              0.03 * torch::randn({rows, 2});
    spiral_ = which;
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {points_[i], spiral_[i]};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(points_.size(0));
  }

 private:
  torch::Tensor points_, spiral_;
};

inline Spirals spirals(std::int64_t rows) { return Spirals(rows); }

struct NetImpl : torch::nn::Module {
  NetImpl()
      : layers(register_module("layers",
                               torch::nn::Sequential(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                                                     torch::nn::Linear(64, 64), torch::nn::Tanh(),
                                                     torch::nn::Linear(64, 2)))) {}
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);
