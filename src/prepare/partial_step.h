// File: prepare/partial_step.h (internal)
// Runs an optimizer's step for some of its parameters, or for tensors that replace them.
//
//   PartialStep partial;
//   partial.run(optimizer, {parameter}, {parameter});
//
// During the step all other places in the optimizer's groups have empty tensors without gradients.
// This works for any optimizer, because a parameter keeps its place, from which some optimizers
// derive random numbers. A tied weight may be listed several times and counts as one. Thread rule:
// that of the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <unordered_map>
#include <vector>

namespace hasten {

// True if the step of a parameter does not depend on other parameters. False for LBFGS, for
// optimizers that count the steps of a group, and for optimizers that are neither hasten's nor
// LibTorch's.
bool steps_parameters_independently(const torch::optim::Optimizer& optimizer);

class PartialStep {
 public:
  // `replacements` has a tensor for each parameter of `some`. All parameters must be in the groups.
  void run(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& some,
           const std::vector<at::Tensor>& replacements);

 private:
  struct Place {
    std::size_t group, index;
  };
  bool has_places_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) const;
  void find_places(torch::optim::Optimizer& optimizer);

  std::vector<std::vector<at::Tensor>> empty_;  // for each group, one tensor per parameter
  std::unordered_map<const c10::TensorImpl*, std::vector<Place>> places_;
};

}  // namespace hasten
