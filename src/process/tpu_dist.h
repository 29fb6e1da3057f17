// File: process/tpu_dist.h (internal)
// torch_tpu's c10d backend `tpu_dist`, from the module libhasten_tpu.so. Its collectives are
// programs that the TPUs of all ranks run together over the links between them. The TPU must be
// open already, as one of this job's TPUs (device/tpu.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hasten {

struct TpuDistSettings {
  c10::intrusive_ptr<c10d::Store> store;
  std::int64_t rank, size;
  std::chrono::milliseconds timeout;
};

// Throws IoError "device.tpu-module", and "device.tpu-failed" with the error of torch_tpu.
c10::intrusive_ptr<c10d::Backend> tpu_dist_backend(const TpuDistSettings& settings);

}  // namespace hasten
