// File: process/nccl.h (internal)
// c10d's NCCL backend for the tensors of a GPU, from the module libhasten_nccl.so beside libhasten:
// it is built where CUDA's headers are, and can be loaded where its libraries are.
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

// Empty where the module can be loaded; else what the system says.
std::string why_no_nccl();
// Throws c10::Error where NCCL itself fails.
c10::intrusive_ptr<c10d::Backend> nccl_backend(const NcclSettings& settings);

}  // namespace hasten
