// File: prepare/placement.h (internal)
// Moves the arguments of prepare() to the process's device, in place. Tensors keep their identity,
// so the module, an optimizer and the program still refer to the same parameter, now on the device.
// At most one tensor at a time has two copies in host memory.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <vector>

namespace hasten {

// Returns the tensors in the state of a parameter, for the optimizers of LibTorch and hasten. Some
// may be undefined.
std::vector<at::Tensor> state_tensors(const torch::optim::OptimizerParamState& state);

// Moves parameters, buffers and gradients to any device, unless they are already there. On a TPU,
// doubles become `double_type_on_device` if it is set.
void move_to_device(torch::nn::Module& module, at::Device device,
                    std::optional<at::ScalarType> double_type_on_device = std::nullopt);

// Does the work of move_to_device() for a device that is not LibTorch's own, such as `tpu`.
// Parameters that are one tensor, or the same view of the same memory, stay shared.
void move_module(torch::nn::Module& module, at::Device device,
                 std::optional<at::ScalarType> double_type_on_device = std::nullopt);

// Moves the states that an optimizer of LibTorch or hasten keeps for its parameters. They get the
// type of their parameter on the device.
void move_state(torch::optim::Optimizer& optimizer, at::Device device,
                std::optional<at::ScalarType> double_type_on_device = std::nullopt);
// Moves the state that such an optimizer keeps for one parameter.
void move_state(const torch::optim::OptimizerParamState& state, at::Device device);

}  // namespace hasten
