// Runs the operators of a GPU on the host: the code that finds the addresses of tensors (ops/gpu_rows.cpp)
// with the kernels in the grid emulator, as operators of the CPU.
//
//   const EmulatedRowKernels emulated;            // for its life
//   const Tensor y = ops::softmax_dropout(...);   // runs the GPU's kernels
//
// Only the operators that the CPU has no kernel for are there.
#pragma once

#include <torch/library.h>

#include "device/cuda/row_kernel_library.h"
#include "ops/gpu_rows.h"
#include "unit/device/grid_emulator.h"

namespace hasten {

class EmulatedRowKernels final : public RowKernelModule {
 public:
  EmulatedRowKernels()
      : library_(torch::Library::IMPL, "hasten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("dropout_add_pre_norm", ops::dropout_add_pre_norm_gpu);
    library_.impl("dropout_add_pre_norm_backward", ops::dropout_add_pre_norm_backward_gpu);
    library_.impl("softmax_dropout", ops::softmax_dropout_gpu);
    library_.impl("softmax_dropout_backward", ops::softmax_dropout_backward_gpu);
    library_.impl("embedding_gradient", ops::embedding_gradient_gpu);
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

  torch::Library library_;
};

}  // namespace hasten
