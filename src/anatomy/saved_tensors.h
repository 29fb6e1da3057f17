// What autograd saves for the backward pass, told to a listener: LibTorch's engine asks for default
// hooks each time it saves a tensor, and an engine of our own answers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace hasten::anatomy {

// Called with each tensor that is saved while set; empty: nothing is hooked. The engine is
// installed at the first call and stays; without a listener it behaves as LibTorch's.
void set_saved_tensor_listener(std::function<void(const at::Tensor&)> listener);

}  // namespace hasten::anatomy
