// Compiles the row kernels for GPUs and starts them.
#include <cuda_runtime.h>

#include <cassert>

#include "device/cuda/kernels/row_launches.h"

namespace hasten::gpu {
namespace {

// A block of threads as the kernels see it (thread_rows.h).
struct CudaBlock {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ Index index() const { return blockIdx.x; }
  __device__ Index count() const { return gridDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ float* shared() const {
    __shared__ float numbers[kSharedFloats];
    return numbers;
  }
  __device__ void check_id(bool holds) const {
    assert(holds && "an id of embedding_sum or a label of linear_cross_entropy is out of range");
  }

  // First over each warp, then over the warps. Blocks consist of whole warps.
  template <int kCount>
  __device__ void sum(float (&numbers)[kCount]) const {
    __shared__ float of_warps[kMaxThreads / kWarp][kCount];
    const int warp = thread() / kWarp, warps = threads() / kWarp;
    for (float& each : numbers)
      each = reduce_over_warp(each, [](float a, float b) { return a + b; });
    if (warps == 1) return;
    if (thread() % kWarp == 0)
      for (int i = 0; i < kCount; ++i) of_warps[warp][i] = numbers[i];
    __syncthreads();
    for (int i = 0; i < kCount; ++i) {
      numbers[i] = 0;
      for (int w = 0; w < warps; ++w) numbers[i] += of_warps[w][i];
    }
    __syncthreads();  // before the next sum overwrites the shared numbers
  }

  __device__ float maximum(float x) const {
    __shared__ float of_warps[kMaxThreads / kWarp];
    const int warp = thread() / kWarp, warps = threads() / kWarp;
    x = reduce_over_warp(x, [](float a, float b) { return fmaxf(a, b); });
    if (thread() % kWarp == 0) of_warps[warp] = x;
    __syncthreads();
    for (int w = 0; w < warps; ++w) x = fmaxf(x, of_warps[w]);
    __syncthreads();  // before the next call overwrites the shared numbers
    return x;
  }

 private:
  template <class Combine>
  static __device__ float reduce_over_warp(float x, Combine combine) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      x = combine(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
  }
};

template <class Kernel>
__global__ void __launch_bounds__(kMaxThreads) run(const Kernel kernel) {
  kernel(CudaBlock{});
}

struct CudaLaunch {
  cudaStream_t stream;

  template <class Kernel>
  void operator()(const Kernel& kernel, const Grid& grid) const {
    run<<<static_cast<unsigned>(grid.blocks), grid.threads, 0, stream>>>(kernel);
  }
};

const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class... Call>
const char* launch_call(void* stream, const Call&... call) {
  start(call..., CudaLaunch{static_cast<cudaStream_t>(stream)});
  return launch_error();
}

}  // namespace

const char* launch_on_stream(void* stream, const BiasGeluCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const BiasGeluBackwardCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const BiasTanhGeluCall& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const BiasTanhGeluBackwardCall& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const ColumnSumCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const DropoutCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const DropoutAddNormCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const DropoutAddNormBackwardCall<>& call,
                             NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const DropoutAddPreNormCall& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const DropoutAddPreNormBackwardCall& call,
                             NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const SoftmaxDropoutCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const SoftmaxDropoutBackwardCall<>& call,
                             NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const CrossEntropyCall<>& call, NumberType type) {
  return launch_call(stream, call, type);
}
const char* launch_on_stream(void* stream, const EmbeddingSumKernel& kernel) {
  return launch_call(stream, kernel);
}
const char* launch_on_stream(void* stream, const EmbeddingGradientCall& call) {
  return launch_call(stream, call);
}

}  // namespace hasten::gpu
