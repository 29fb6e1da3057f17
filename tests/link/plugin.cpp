// A library that links hasten and trains a model. A program loads it at run time.
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/optim/adamw.h"

extern "C" __attribute__((visibility("default"))) int train() {
  hasten::Accelerator accelerator({.cpu = true});
  std::printf("dry: %d\n", hasten::DryRun::active());
  torch::nn::Linear net(4, 1);
  hasten::AdamW adamw(net->parameters());
  std::vector<at::Tensor> batches = {at::ones({2, 4}), at::zeros({2, 4})};
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  for (auto& batch : loader) {
    optimizer.zero_grad();
    accelerator.backward(model(batch).square().mean());
    optimizer.step();
  }
  std::printf("steps: %d\n", static_cast<int>(optimizer.steps()));
  return 0;
}
