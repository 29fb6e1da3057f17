// File: hasten/prepare/precision.h
// The type that matrix products are formed in, and the scope in which that holds.
//
//   auto guard = autocast(Precision::bf16, at::kCPU);     // until the end of the block
//
// `no` leaves types as they are. `bf16` keeps weights, gradients and optimizer state in float and
// forms products in bfloat16 (LibTorch's autocast). On a CPU without AVX512-BF16 (or AMX) bfloat16
// is emulated and some 20 times slower than float: bf16_is_fast() says which it is. A guard of `no`
// changes nothing: an autocast of the caller's own holds inside of it as it did outside. Thread
// rule: a guard acts on its thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "hasten/config/names.h"

namespace hasten {

enum class Precision { no, bf16 };

template <>
struct Names<Precision> {
  static constexpr std::string_view text[] = {"no", "bf16"};
};

bool bf16_is_fast(at::Device device);

class [[nodiscard]] AutocastGuard {
 public:
  AutocastGuard(Precision precision, at::DeviceType device);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  // What held before; none where nothing was changed.
  struct Before {
    bool enabled;
    at::ScalarType type;
  };
  at::DeviceType device_;
  std::optional<Before> before_;
};

}  // namespace hasten
