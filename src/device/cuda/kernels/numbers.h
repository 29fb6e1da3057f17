// File: device/cuda/kernels/numbers.h (internal)
// The number types of the GPU kernels, which store 32 or 16 bits and compute in float. nvcc
// compiles this code for the GPU, and the host's compiler for the grid emulator of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
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

// These functions round to the nearest, as LibTorch does. A NaN stays a NaN.
HASTEN_GPU_CODE void store(float& to, float value) { to = value; }
HASTEN_GPU_CODE void store(Bfloat16& to, float value) {
#ifdef __CUDACC__
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7FC0u : rounded);
#endif
}
HASTEN_GPU_CODE void store(Float16& to, float value) {
#ifdef __CUDACC__
  to.bits = __half_as_ushort(__float2half_rn(value));
#else
  to.bits = c10::detail::fp16_ieee_from_fp32_value(value);
#endif
}

// Stores two neighbouring numbers, which newer GPUs round in one instruction.
template <class T>
HASTEN_GPU_CODE void store_two(T* to, float first, float second) {
  store(to[0], first);
  store(to[1], second);
}
#ifdef __CUDACC__
HASTEN_GPU_CODE void store_two(Bfloat16* to, float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  memcpy(to, &both, sizeof both);
}
HASTEN_GPU_CODE void store_two(Float16* to, float first, float second) {
  const __half2 both = __floats2half2_rn(first, second);
  memcpy(to, &both, sizeof both);
}
#endif

// Returns 1 / x with an error of at most two roundings.
HASTEN_GPU_CODE float reciprocal(float x) {
#ifdef __CUDACC__
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns e^x with a relative error of at most 1e-7 (1 + |x|). On a GPU, results below 2^-126 are
// 0. There exp2f takes four instructions, because it computes these results too.
HASTEN_GPU_CODE float exponential(float x) {
#ifdef __CUDACC__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(1.44269504f * x));
  return power;
#else
  return exp2f(1.44269504f * x);
#endif
}

// Neighbouring numbers, which one instruction reads or writes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

template <int kCount, class T>
HASTEN_GPU_CODE Pack<T, kCount> read_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <int kCount, class T>
HASTEN_GPU_CODE void load_pack(const T* from, float (&to)[kCount]) {
  const Pack<T, kCount> pack = read_pack<kCount>(from);
  for (int i = 0; i < kCount; ++i) to[i] = load(pack.values[i]);
}
template <class T, int kCount>
HASTEN_GPU_CODE Pack<T, kCount> rounded(const float (&from)[kCount]) {
  Pack<T, kCount> pack;
  if constexpr (kCount == 1) {
    store(pack.values[0], from[0]);
  } else {
    for (int i = 0; i < kCount; i += 2) store_two(pack.values + i, from[i], from[i + 1]);
  }
  return pack;
}
template <class T, int kCount>
HASTEN_GPU_CODE void write_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}
// Writes numbers that this kernel does not read again. The cache evicts them first.
template <class T, int kCount>
HASTEN_GPU_CODE void write_streaming(T* to, const Pack<T, kCount>& pack) {
#ifdef __CUDACC__
  if constexpr (sizeof pack == sizeof(uint4)) {
    uint4 bits;
    memcpy(&bits, &pack, sizeof bits);
    __stcs(reinterpret_cast<uint4*>(to), bits);
    return;
  }
#endif
  write_pack(to, pack);
}

}  // namespace hasten::gpu
