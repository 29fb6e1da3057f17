// File: anatomy/gpu_kernels.h (internal)
// What LibTorch's kernels for CUDA do otherwise than those for the CPU, as far as memory goes:
// which attention is taken, what results look like, and what a kernel takes for itself.
//
// Source: LibTorch 2.11, its headers, binaries and neighbouring sources: sdp_utils.cpp (the
// choice), attention.cu, attention_backward.cu, flash_api.cpp, kernel_backward.h (attention),
// Reduce.cuh (sums), Embedding.cu, ForeachReduceOp.cu, Indexing.cu, CublasHandlePool.cpp. What
// cuDNN's plans take (convolutions, its attention) is not known without it and not counted.
//
// Thread rule: pure functions; those that depend on the GPU ask the DryGpu that is on.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "anatomy/shape_rules.h"
#include "hasten/config/gpus.h"

namespace hasten::anatomy {

// As an at::SDPBackend; LibTorch's own signature of such a function.
std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout_p, bool is_causal, std::optional<double> scale,
                              bool enable_gqa);

// Results on CUDA where they differ from the CPU's, or where only CUDA has the operator. A result
// that is not on the Meta device is taken as it is.
ShapeRule find_gpu_shape_rule(std::string_view name);

// What a kernel takes for itself beside its results: blocks held together, then, where those are
// freed before the next are taken, the next. Arguments as the program gave them.
using Moments = std::vector<std::vector<std::int64_t>>;
using GpuWorkspace = Moments (*)(const std::vector<c10::IValue>& arguments, const Gpu& gpu);
GpuWorkspace find_gpu_workspace(std::string_view name);

// The library for products that an operator calls; each keeps a workspace for each thread.
enum class ProductLibrary { none, cublas, cublas_lt };
ProductLibrary product_library(std::string_view name, const std::vector<c10::IValue>& arguments);
std::int64_t cublas_workspace(const Gpu& gpu);
inline constexpr std::int64_t kCublasLtWorkspace = 1 << 20;

}  // namespace hasten::anatomy
