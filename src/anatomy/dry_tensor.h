// File: anatomy/dry_tensor.h (internal)
// Tensors with storage that has an address but no pages: reading gives zeros, and writing takes
// memory only for the part that is written. Allocations and releases are reported as LibTorch's
// allocator reports them. On a GPU the simulated allocator determines their sizes. Thread rule: any
// thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hasten::anatomy {

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      at::Device device);

// Makes a tensor on an existing storage.
at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      c10::Storage storage);

// Returns memory without a tensor, or null for 0 bytes.
c10::DataPtr dry_memory(std::int64_t bytes, at::Device device);
// Returns a storage on such memory. It cannot be resized.
c10::Storage dry_storage(std::int64_t bytes, at::Device device);

// From now on, tensors above 64 KiB get addresses that are not mapped, so that they do not count
// against a limit of the address space. A program that writes through such an address is killed, so
// call this only in a separate process.
void allow_addresses_without_pages();

// Takes all blocks and frees them, as a kernel does with temporary memory. Sizes are in bytes.
void dry_workspaces(const std::vector<std::int64_t>& blocks, at::Device device);

// Returns the bytes that the allocator gave to the tensor's storage. On a GPU this is more than was
// requested.
std::int64_t allocated_bytes(const at::Tensor& tensor);

}  // namespace hasten::anatomy
