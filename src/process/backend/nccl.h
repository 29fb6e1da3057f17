// File: process/backend/nccl.h (internal)
// c10d's NCCL backend for the tensors of a GPU, from the module libhasten_nccl.so next to
// libhasten. The module is built if CUDA's headers are installed and loaded if CUDA's libraries
// are.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hasten {

struct NcclSettings {
  c10::intrusive_ptr<c10d::Store> store;
  std::int64_t rank, size;
  at::Device device;
  std::chrono::milliseconds timeout;
};

// Returns an empty string if the module can be loaded, else the loader's error.
std::string missing_nccl_reason();
// Throws c10::Error if the module cannot be loaded or NCCL fails.
c10::intrusive_ptr<c10d::Backend> nccl_backend(const NcclSettings& settings);

}  // namespace hasten
