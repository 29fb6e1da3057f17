#include "ops/kernels/kernels.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

namespace hasten::ops {
namespace {

const Kernels& choose() {
  const char* wish = std::getenv("HASTEN_CPU_KERNELS");
  const std::string_view most = wish ? wish : "avx512";
  if (most == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return avx512::table();
  }
  if (most != "baseline" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return avx2::table();
  return baseline::table();
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

Dropout Dropout::make(double p, std::uint64_t seed) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  return {.seed = seed,
          .threshold = threshold,
          .scale = static_cast<float>(65536.0 / (65536.0 - threshold))};
}

}  // namespace hasten::ops
