// File: anatomy/dry_tensor.h (internal)
// Tensors whose storage has an address but no pages: reading gives zeros, and writing takes memory
// only for what is written. Allocations and releases are reported as LibTorch's allocator reports
// them; on a GPU the simulated allocator determines their sizes. Thread rule: any thread.
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

// Memory without a tensor; null for 0 bytes.
c10::DataPtr dry_memory(std::int64_t bytes, at::Device device);
// A storage on such memory, which cannot be resized.
c10::Storage dry_storage(std::int64_t bytes, at::Device device);

// From now on, tensors above 64 KiB get addresses that are not mapped, so that a limit of the
// address space does not matter. A program that writes through such an address is killed: call it
// only in a process of its own.
void allow_addresses_without_pages();

// Takes all blocks and gives them back, as a kernel does with memory of its own. In bytes.
void dry_workspaces(const std::vector<std::int64_t>& blocks, at::Device device);

// Returns the bytes that the allocator gave to the tensor's storage, which on a GPU are more than
// were requested.
std::int64_t allocated_bytes(const at::Tensor& tensor);

}  // namespace hasten::anatomy
