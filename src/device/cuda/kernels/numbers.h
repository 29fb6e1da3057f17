// File: device/cuda/kernels/numbers.h (internal)
// The number types of the GPU kernels, which store 32 or 16 bits and compute in float. nvcc compiles
// this code for the GPU, and the host's compiler for the grid emulator of the tests.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define HASTEN_GPU_CODE __device__ __forceinline__
#else
#include <c10/util/Half.h>
#define HASTEN_GPU_CODE inline
#endif

namespace hasten::gpu {

using Index = std::int64_t;

enum class NumberType { f32, bf16, fp16 };

struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

HASTEN_GPU_CODE float load(float x) { return x; }
HASTEN_GPU_CODE float load(Bfloat16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}
HASTEN_GPU_CODE float load(Float16 x) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(x.bits));
#else
  return c10::detail::fp16_ieee_to_fp32_value(x.bits);
#endif
}

HASTEN_GPU_CODE void store(float& to, float value) { to = value; }
// Rounds to the nearest, as LibTorch does; a NaN stays a NaN.
HASTEN_GPU_CODE void store(Bfloat16& to, float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7FC0u : rounded);
}
HASTEN_GPU_CODE void store(Float16& to, float value) {
#ifdef __CUDACC__
  to.bits = __half_as_ushort(__float2half_rn(value));
#else
  to.bits = c10::detail::fp16_ieee_from_fp32_value(value);
#endif
}

// Neighbouring numbers, which one instruction reads or writes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

}  // namespace hasten::gpu
