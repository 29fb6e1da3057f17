// File: anatomy/gpu_reduction.h (internal)
// How LibTorch splits a sum over a GPU's blocks of threads, and the memory in which the parts meet.
// A sum over many rows and few columns takes far more than its result: the gradient of a bias of
// 4096 numbers over 2048 rows takes 64 MiB. Source: ATen/native/cuda/Reduce.cuh of LibTorch 2.11,
// setReduceConfig and gpu_reduce_kernel. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hasten/config/gpus.h"

namespace hasten::anatomy {

struct ReductionBuffers {
  std::int64_t staging = 0;     // bytes; 0: each sum is formed by one block
  std::int64_t semaphores = 0;  // bytes
};

// `dimensions` of x are summed; empty: all of them.
ReductionBuffers reduction_buffers(const at::Tensor& x, const std::vector<std::int64_t>& dimensions,
                                   const Gpu& gpu);

}  // namespace hasten::anatomy
