// File: anatomy/dry_tensor.h (internal)
// Tensors with sizes, strides and a storage that has an address but no pages: reading gives zeros,
// writing takes memory for what is written and no more. Births and deaths are reported as
// LibTorch's allocator reports them; on a GPU the simulated allocator says how large they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hasten::anatomy {

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      at::Device device);

// A tensor on a storage that is there.
at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      c10::Storage storage);

// The bytes alone.
c10::DataPtr dry_memory(std::int64_t bytes, at::Device device);
c10::Storage dry_storage(std::int64_t bytes, at::Device device);

// Memory that a kernel takes for itself and gives back before it returns.
void dry_workspaces(const std::vector<std::int64_t>& blocks, at::Device device);

// The bytes its allocator gave, which on a GPU are more than were asked for.
std::int64_t allocated_bytes(const at::Tensor& tensor);

}  // namespace hasten::anatomy
