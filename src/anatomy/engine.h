// File: anatomy/engine.h (internal)
// Replaces LibTorch's autograd engine. LibTorch asks its engine for default hooks each time it
// saves a tensor for the backward pass; the hooks of this engine report the tensor. While a DryGpu
// lives or a TPU is open, another engine is used that has a thread for the device, as LibTorch's
// engine has for a GPU. Thread rule: while no other thread runs a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace hasten::anatomy {

// Installs the engine for the rest of the process, at the first call. Without a listener it behaves
// as LibTorch's.
void install_engine();

// Sets the function that is called with each tensor that is saved for the backward pass. With an
// empty function nothing is hooked.
void set_saved_tensor_listener(std::function<void(const at::Tensor&)> listener);

}  // namespace hasten::anatomy
