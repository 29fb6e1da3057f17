// File: device/cuda/row_kernel_module.h (internal)
// The interface of libhasten_row_kernels.so, which starts the row kernels in the current stream of
// a GPU. It is a library of its own, because it needs nvcc and CUDA's headers to compile.
#pragma once

#include "device/cuda/kernels/row_calls.h"

namespace hasten {

class RowKernelModule {
 public:
  // Each function returns null, or the text of an error. Thread rule: any thread.
  virtual const char* start(int gpu, const gpu::BiasGeluCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::BiasGeluBackwardCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::BiasTanhGeluCall&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::BiasTanhGeluBackwardCall&,
                            gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::ColumnSumCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::DropoutCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::DropoutAddNormCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::DropoutAddNormBackwardCall<>&,
                            gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::DropoutAddPreNormCall&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::DropoutAddPreNormBackwardCall&,
                            gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::SoftmaxDropoutCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::SoftmaxDropoutBackwardCall<>&,
                            gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::CrossEntropyCall<>&, gpu::NumberType) const = 0;
  virtual const char* start(int gpu, const gpu::EmbeddingSumKernel&) const = 0;
  virtual const char* start(int gpu, const gpu::EmbeddingGradientCall&) const = 0;

 protected:
  ~RowKernelModule() = default;
};

}  // namespace hasten
