// File: anatomy/gpu_kernels.h (internal)
// How LibTorch's CUDA kernels differ from its CPU kernels in their use of memory: which attention
// kernel runs, which shapes, types and strides results have, and how much temporary memory a kernel
// takes.
//
// Source: LibTorch 2.11, from its headers, its binaries and the sources of neighbouring versions:
// sdp_utils.cpp (the choice), attention.cu, attention_backward.cu, flash_api.cpp, kernel_backward.h
// (attention), Reduce.cuh (sums), Embedding.cu, ForeachReduceOp.cu, Indexing.cu,
// CublasHandlePool.cpp. The workspaces of cuDNN were measured on an H200 for attention, recurrent
// layers, and the gradient of a convolution's input in 16-bit numbers. The workspaces for the
// gradient of a convolution's weights follow no known rule and are not counted.
//
// Thread rule: pure functions, except that choose_attention reads the active DryGpu.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "anatomy/shape_rules.h"
#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

// Returns the attention kernel that LibTorch chooses, as an at::SDPBackend. The signature is
// LibTorch's.
std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout_p, bool is_causal, std::optional<double> scale,
                              bool enable_gqa);

// Returns the rule of an operator that has different results on CUDA than on the CPU, or that only
// CUDA has. Returns null for other operators. `overload` is the name of the operator's overload,
// which may be empty. A result that is not on the Meta device is used unchanged.
ShapeRule find_gpu_shape_rule(std::string_view name, std::string_view overload);

// Returns the results that a kernel allocates before the others, in this order. Returns an empty
// list if the kernel allocates all results in the order of the schema. The order decides which free
// block of the allocator each result gets.
std::vector<std::size_t> find_gpu_result_order(std::string_view name);

// The bytes of temporary memory that a kernel takes. The blocks of one list exist at the same time,
// and are released before the blocks of the next list are taken.
using WorkspaceStages = std::vector<std::vector<std::int64_t>>;
// `arguments` are the arguments of the program's call, unchanged.
using GpuWorkspace = WorkspaceStages (*)(const std::vector<c10::IValue>& arguments, const Gpu& gpu);
// Returns null if the operator has no such rule.
GpuWorkspace find_gpu_workspace(std::string_view name);

// Does the work of an operator that calls other operators: takes the arguments from the stack and
// leaves the results there.
using GpuComposite = void (*)(torch::jit::Stack* stack);
// Returns null if the operator has no such function.
GpuComposite find_gpu_composite(std::string_view name);

// The library that computes an operator's products. Each library keeps a workspace for each thread.
enum class ProductLibrary { none, cublas, cublas_lt };
ProductLibrary product_library(std::string_view name, const std::vector<c10::IValue>& arguments);
std::int64_t cublas_workspace(const Gpu& gpu);
inline constexpr std::int64_t kCublasLtWorkspace = 1 << 20;

}  // namespace hasten::anatomy
