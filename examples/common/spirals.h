// The task of several examples: to tell the points of two spirals apart. Contains the data and the
// network.
#pragma once

#include <torch/torch.h>

// Returns noisy points of two spirals: rows {x, y}, and as targets the spirals' numbers, 0 or 1.
inline torch::data::Example<> spiral_points(std::int64_t rows) {
  const torch::Tensor turn = torch::rand({rows}).sqrt() * 7.0,
                      spiral = torch::randint(0, 2, {rows});
  const torch::Tensor angle = turn + spiral * M_PI;
  return {torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 4.0 +
              0.03 * torch::randn({rows, 2}),
          spiral};
}

class SpiralDataset : public torch::data::datasets::Dataset<SpiralDataset> {
 public:
  explicit SpiralDataset(std::int64_t rows) : all_(spiral_points(rows)) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {all_.data[row], all_.target[row]};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(all_.data.size(0));
  }

 private:
  torch::data::Example<> all_;
};

// Returns the same points as a dataset for loaders.
inline auto spirals(std::int64_t rows) {
  return SpiralDataset(rows).map(torch::data::transforms::Stack<>());
}

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
