// File: anatomy/dry_tensor.h (internal)
// Tensors with sizes, strides and a storage that has an address but no pages: reading gives zeros,
// writing takes memory for what is written and no more. Births and deaths are reported as
// LibTorch's allocator reports them.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten::anatomy {

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      at::Device device);

// Memory that a kernel takes for itself and gives back before it returns.
void dry_workspace(std::int64_t bytes, at::Device device);

}  // namespace hasten::anatomy
