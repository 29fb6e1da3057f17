#include <torch/torch.h>

#include <hasten/hasten.h>
#include <cstdio>

int main() {
  hasten::Accelerator accelerator({.cpu = true});
  torch::nn::Linear net(4, 1);
  hasten::AdamW adamw(net->parameters());
  std::vector<torch::Tensor> batches = {torch::ones({2, 4}), torch::zeros({2, 4})};
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  for (auto& batch : loader) {
    optimizer.zero_grad();
    accelerator.backward(model(batch).square().mean());
    optimizer.step();
  }
  std::printf("installed hasten made %lld steps\n", static_cast<long long>(optimizer.steps()));
  return optimizer.steps() == 2 ? 0 : 1;
}
