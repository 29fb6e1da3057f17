// File: prepare/placement.h (internal)
// Moves what prepare() is given to the device of its process, in place: tensors keep their
// identity, so whoever holds a parameter (the module, an optimizer, the program) then holds it on
// the device. Host memory holds two copies of at most one tensor at a time.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <vector>

namespace hasten {

// Returns the tensors in an optimizer's state of one parameter, for the optimizers of LibTorch and
// of hasten. Some may be undefined.
std::vector<at::Tensor> parts_of(const torch::optim::OptimizerParamState& state);

// Moves parameters, buffers and gradients to any device. Does nothing if they are there already. On
// a TPU, tensors in double become `double_there` if it is set.
void place(torch::nn::Module& module, at::Device device,
           std::optional<at::ScalarType> double_there = std::nullopt);

// Does the work of place() for a device that is not LibTorch's own, such as `tpu`. Two parameters
// that are one tensor stay one, and so do two that are the same view of one memory.
void move_module(torch::nn::Module& module, at::Device device,
                 std::optional<at::ScalarType> double_there = std::nullopt);
// Moves the state that the optimizers of LibTorch and of hasten keep of each parameter, in the type
// that the parameter has on the device.
void move_state(torch::optim::Optimizer& optimizer, at::Device device,
                std::optional<at::ScalarType> double_there = std::nullopt);

}  // namespace hasten
