// File: anatomy/gpu_reduction.h (internal)
// How LibTorch splits a sum over a GPU's thread blocks, and the memory in which the partial sums
// are combined. A sum over many rows and few columns takes far more than its result: the gradient
// of a bias of 4096 numbers over 2048 rows takes 64 MiB. Source: ATen/native/cuda/Reduce.cuh of
// LibTorch 2.11, setReduceConfig and gpu_reduce_kernel. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

struct ReductionBuffers {
  std::int64_t staging = 0;     // bytes; 0 if one block forms each sum
  std::int64_t semaphores = 0;  // bytes
};

// Returns the buffers of a sum of x over `dimensions`, or over all dimensions if the list is empty.
// Both are 0 bytes if x is empty or not a floating-point tensor.
ReductionBuffers reduction_buffers(const at::Tensor& x, const std::vector<std::int64_t>& dimensions,
                                   const Gpu& gpu);

}  // namespace hasten::anatomy
