// File: prepare/placement.h (internal)
// What prepare() moves to the device of its process, where it lies: tensors keep their identity, so
// whoever holds a parameter (the module, an optimizer, the program) holds it on the device. Of host
// memory one tensor at a time has two copies.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <vector>

namespace hasten {

// The tensors in the state of a parameter, of LibTorch's optimizers and hasten's; some may be
// undefined.
std::vector<at::Tensor> parts_of(const torch::optim::OptimizerParamState& state);

// Parameters, buffers and gradients, to any device; nothing is done where they are there.
// On a TPU in the type that `double_there` names where they are double.
void place(torch::nn::Module& module, at::Device device,
           std::optional<at::ScalarType> double_there = std::nullopt);

// What place() does for a device outside of LibTorch's own, as `tpu` is. Two parameters that are
// one stay one, and so do two that share their memory.
void move_module(torch::nn::Module& module, at::Device device,
                 std::optional<at::ScalarType> double_there = std::nullopt);
// What LibTorch's optimizers and hasten's keep of each parameter, in the type that it has there.
void move_state(torch::optim::Optimizer& optimizer, at::Device device,
                std::optional<at::ScalarType> double_there = std::nullopt);

}  // namespace hasten
