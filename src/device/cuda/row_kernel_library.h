// File: device/cuda/row_kernel_library.h (internal)
// hasten's own kernels for GPUs (kernels/row_calls.h). With them the operators hasten::bias_gelu,
// hasten::dropout, hasten::dropout_add_norm and hasten::embedding_sum make one pass over memory.
//
// They are used if the library exists and the GPU has compute capability 7.5 or later. With
// HASTEN_CUDA_KERNELS=1 a missing library is an error; with 0 the operators are composed of
// LibTorch's operators.
#pragma once

#include <c10/core/ScalarType.h>

#include "device/cuda/row_kernel_module.h"

namespace hasten {

// Returns whether there are kernels for rows of this type.
bool has_row_kernel_type(at::ScalarType type);

// Returns whether GPUs process rows of this type with these kernels. A dry run for a GPU assumes
// that the library exists, because it calls no kernels. Throws ConfigError if HASTEN_CUDA_KERNELS
// is neither 0 nor 1. If it is 1, also throws what gpu_row_kernels() throws. Thread rule: any
// thread.
bool has_gpu_row_kernels(at::ScalarType type);

// Loads the library with the kernels. Throws UsageError "device.no-gpu-kernels" if that fails.
// Thread rule: any thread.
const RowKernelModule& gpu_row_kernels();

// Makes gpu_row_kernels() return other kernels: tests run the kernels on the host. Null restores
// the library. Thread rule: while no other thread starts a kernel.
void replace_gpu_row_kernels(const RowKernelModule* others);

}  // namespace hasten
