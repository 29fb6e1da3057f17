#include "ops/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace hasten::ops {

// table.cpp defines each of these, compiled for that instruction set.
namespace baseline {
const Kernels& table();
}
#ifdef __x86_64__
namespace avx2 {
const Kernels& table();
}
namespace avx512 {
const Kernels& table();
}
#endif

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> sets = {&baseline::table()};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
    sets.push_back(&avx2::table());
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      sets.push_back(&avx512::table());
    }
  }
#endif
  return sets;
}

namespace {

const Kernels& choose() {
  const std::vector<const Kernels*> sets = runnable_kernels();
  if (const char* wish = std::getenv("HASTEN_CPU_KERNELS")) {
    for (const Kernels* set : sets) {
      if (std::string_view(set->isa) == wish) return *set;
    }
  }
  return *sets.back();
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

Dropout Dropout::make(double p, std::uint64_t seed) {
  if (p == 1) return {.seed = seed, .threshold = 65536, .scale = 0.0f};
  // Below 1 something is kept, so that the expectation is that of x.
  const auto threshold = static_cast<std::uint32_t>(std::min(std::lround(p * 65536), 65535L));
  return {.seed = seed,
          .threshold = threshold,
          .scale = static_cast<float>(65536.0 / (65536.0 - threshold))};
}

}  // namespace hasten::ops
