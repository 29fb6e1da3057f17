// A plain LibTorch training loop: a small network learns to tell the points of two spirals apart.
#include <torch/torch.h>

#include <cstdio>

#include "../common/spirals.h"

int main() {
  torch::manual_seed(42);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  Net net;
  net->to(device);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  auto batches = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      spirals(4096), torch::data::DataLoaderOptions(32));

  double last = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : *batches) {
      adamw.zero_grad();
      auto loss =
          torch::nn::functional::cross_entropy(net(batch.data.to(device)), batch.target.to(device));
      loss.backward();
      adamw.step();
      last = loss.item<double>();
    }
    std::printf("epoch %d loss %.4f\n", epoch, last);
  }
}
