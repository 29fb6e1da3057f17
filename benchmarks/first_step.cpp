// Makes the first step of several processes: a linear model, with gradients that are averaged over
// all processes. The caller measures how long the program runs. The argument selects where it ends:
//
//   $ hasten launch -n 4 first_step load     # after LibTorch has been loaded and has run once
//   $ hasten launch -n 4 first_step group    # after the processes have also formed a group
//   $ hasten launch -n 4 first_step step     # after they have also made a step
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <string>

#include "hasten/process/group.h"

int main(int argc, char** argv) {
  const std::string until = argc > 1 ? argv[1] : "step";
  torch::nn::Linear model(64, 1);
  if (until == "load") return model->forward(at::ones({8, 64})).sum().item<float>() == 0 ? 1 : 0;
  const auto group = hasten::Group::form(hasten::worker_of(hasten::config::whole_environment()));
  group.barrier();
  if (until == "group") return 0;
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (auto& parameter : model->parameters())
    parameter.set_data(group.broadcast(parameter.detach()));
  const at::Tensor loss = model->forward(at::randn({8, 64})).pow(2).mean();
  loss.backward();
  for (auto& parameter : model->parameters())
    parameter.mutable_grad() = group.reduce(parameter.grad(), hasten::Reduction::mean);
  optimizer.step();
  if (group.rank() == 0) std::printf("loss %f\n", loss.item<float>());
  return 0;
}
