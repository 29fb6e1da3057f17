// File: prepare/partial_step.h (internal)
// Makes a step of some parameters of an optimizer, or of tensors that stand for them.
//
//   PartialStep partial;
//   partial.run(optimizer, {parameter}, {parameter});
//
// All other places of the optimizer's groups have empty tensors without gradients meanwhile, so any
// optimizer can do it: a parameter keeps its place, which some optimizers derive random numbers
// from. A tied weight, which may be listed several times, counts as one.
// Thread rule: that of the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <unordered_map>
#include <vector>

namespace hasten {

// True if the step of a parameter does not depend on others. False for LBFGS, for optimizers that
// count the steps of a group, and for those that neither hasten nor LibTorch has.
bool steps_parameters_apart(const torch::optim::Optimizer& optimizer);

class PartialStep {
 public:
  // `instead` has a tensor for each parameter of `some`. All parameters must be in the groups.
  void run(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& some,
           const std::vector<at::Tensor>& instead);

 private:
  struct Place {
    std::size_t group, index;
  };
  bool knows(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) const;
  void learn(torch::optim::Optimizer& optimizer);

  std::vector<std::vector<at::Tensor>> empty_;  // by group, a tensor for each parameter
  std::unordered_map<const c10::TensorImpl*, std::vector<Place>> places_;
};

}  // namespace hasten
