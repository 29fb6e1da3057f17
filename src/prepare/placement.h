// File: prepare/placement.h (internal)
// Moves what prepare() is given to the process's device, in place: tensors keep their identity, so
// the module, an optimizer and the program, which hold a parameter, then hold it on the device. At
// most one tensor at a time has two copies in host memory.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <vector>

namespace hasten {

// Returns the tensors in the state of a parameter, for LibTorch's and hasten's optimizers. Some
// may be undefined.
std::vector<at::Tensor> state_tensors(const torch::optim::OptimizerParamState& state);

// Moves parameters, buffers and gradients to any device, unless they are there. On a TPU, doubles
// become `double_type_on_device` if it is set.
void move_to_device(torch::nn::Module& module, at::Device device,
                    std::optional<at::ScalarType> double_type_on_device = std::nullopt);

// Does the work of move_to_device() for a device that is not LibTorch's own, such as `tpu`.
// Parameters that are one tensor, or the same view of one memory, stay so.
void move_module(torch::nn::Module& module, at::Device device,
                 std::optional<at::ScalarType> double_type_on_device = std::nullopt);

// Moves what LibTorch's and hasten's optimizers keep of each parameter, in the type
// that it has there.
void move_state(torch::optim::Optimizer& optimizer, at::Device device,
                std::optional<at::ScalarType> double_type_on_device = std::nullopt);
// Moves what one of them keeps of one parameter.
void move_state(const torch::optim::OptimizerParamState& state, at::Device device);

}  // namespace hasten
