// File: hasten/prepare/detail/autocast.h
// A scope in which matrix products are computed in another type, and whether this CPU is fast in
// that type.
//
//   const AutocastGuard guard(Precision::bf16, at::kCPU);  // until the end of the block
//
// `no` leaves types unchanged. `bf16` and `fp16` keep weights, gradients and optimizer state in
// float and compute products in bfloat16 or float16 (LibTorch's autocast). float16 has more digits
// and a smaller range, so its losses are scaled (hasten/optim/grad_scaler.h); an Accelerator does
// that. A CPU without AVX512-BF16 or AMX emulates bfloat16, and one without AVX512-FP16 or AMX-FP16
// emulates float16: products are then 4 to 20 times slower than in float. oneDNN has no LSTM in
// these types on CPUs without AVX-512 or, for float16, AVX512-FP16; from the first guard on, LSTMs
// under autocast then use LibTorch's own implementation, where LibTorch alone throws. A guard with
// `no` changes nothing: the caller's autocast still applies inside it. Thread rule: a guard acts on
// its own thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/precision.h"

namespace hasten {

// False on a CPU that emulates bfloat16.
HASTEN_API bool bf16_is_fast(at::Device device);
// False on a CPU that emulates float16.
HASTEN_API bool fp16_is_fast(at::Device device);

class [[nodiscard]] HASTEN_API AutocastGuard {
 public:
  AutocastGuard(Precision precision, at::DeviceType device);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  // The state before the guard; unset if the guard changes nothing.
  struct PreviousState {
    bool enabled;
    at::ScalarType type;
  };
  at::DeviceType device_;
  std::optional<PreviousState> before_;
};

}  // namespace hasten
