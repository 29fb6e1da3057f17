// File: anatomy/engine.h (internal)
// The autograd engine in LibTorch's place. It tells what is saved for the backward pass: LibTorch's
// engine asks for default hooks each time it saves a tensor, and this one answers. And while a
// DryGpu lives it is another one, which has a thread for that device as LibTorch's has for a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace hasten::anatomy {

// Once installed it stays; without a listener it behaves as LibTorch's.
void install_engine();

// Called with each tensor that is saved while set; empty: nothing is hooked.
void set_saved_tensor_listener(std::function<void(const at::Tensor&)> listener);

}  // namespace hasten::anatomy
