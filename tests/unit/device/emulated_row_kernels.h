// Runs the operators of a GPU on the host. The code that finds the addresses of tensors
// (ops/gpu_rows.cpp) is registered for the CPU, and the grid emulator runs the kernels.
//
//   const EmulatedRowKernels emulated;            // for its life
//   const Tensor y = ops::softmax_dropout(...);   // runs the GPU's kernels
//
// Only operators without a CPU kernel are registered, including some of LibTorch's operators.
#pragma once

#include <torch/library.h>

#include "device/cuda/row_kernel_library.h"
#include "ops/gpu_rows.h"
#include "unit/device/grid_emulator.h"

namespace hasten {

class EmulatedRowKernels final : public RowKernelModule {
 public:
  EmulatedRowKernels()
      : library_(torch::Library::IMPL, "hasten", c10::DispatchKey::CPU, __FILE__, __LINE__),
        libtorch_(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("bias_tanh_gelu", ops::bias_tanh_gelu_gpu);
    library_.impl("bias_tanh_gelu_backward", ops::bias_tanh_gelu_backward_gpu);
    library_.impl("dropout_add_pre_norm", ops::dropout_add_pre_norm_gpu);
    library_.impl("dropout_add_pre_norm_backward", ops::dropout_add_pre_norm_backward_gpu);
    library_.impl("softmax_dropout", ops::softmax_dropout_gpu);
    library_.impl("softmax_dropout_backward", ops::softmax_dropout_backward_gpu);
    library_.impl("embedding_gradient", ops::embedding_gradient_gpu);
    libtorch_.impl("mm.dtype", product_of_type);
    libtorch_.impl("addmm.dtype_out", add_product_of_type);
    replace_gpu_row_kernels(this);
  }
  EmulatedRowKernels(const EmulatedRowKernels&) = delete;
  EmulatedRowKernels& operator=(const EmulatedRowKernels&) = delete;
  ~EmulatedRowKernels() { replace_gpu_row_kernels(nullptr); }

  const char* start(int, const gpu::BiasGeluCall<>& call, gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::BiasGeluBackwardCall<>& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::BiasTanhGeluCall& call, gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::BiasTanhGeluBackwardCall& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::ColumnSumCall<>& call, gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::DropoutCall<>& call, gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::DropoutAddNormCall<>& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::DropoutAddNormBackwardCall<>& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::DropoutAddPreNormCall& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::DropoutAddPreNormBackwardCall& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::SoftmaxDropoutCall<>& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::SoftmaxDropoutBackwardCall<>& call,
                    gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::CrossEntropyCall<>& call, gpu::NumberType type) const override {
    return run(call, type);
  }
  const char* start(int, const gpu::EmbeddingSumKernel& kernel) const override {
    return run(kernel);
  }
  const char* start(int, const gpu::EmbeddingGradientCall& call) const override {
    return run(call);
  }

 private:
  template <class... Call>
  static const char* run(const Call&... call) {
    gpu::start(call...,
               [](const auto& kernel, const gpu::Grid& grid) { gpu::emulate(kernel, grid); });
    return nullptr;
  }

  // Computes a product with a result of a different type, which LibTorch supports only on CUDA.
  static at::Tensor product_of_type(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
    return at::mm(a.to(type), b.to(type));
  }
  static at::Tensor& add_product_of_type(const at::Tensor& sum, const at::Tensor& a,
                                         const at::Tensor& b, at::ScalarType type,
                                         const at::Scalar& beta, const at::Scalar& alpha,
                                         at::Tensor& out) {
    return at::addmm_out(out, sum, a.to(type), b.to(type), beta, alpha);
  }

  torch::Library library_, libtorch_;
};

}  // namespace hasten
