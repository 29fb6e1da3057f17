#include "ops/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "hasten/base/error.h"

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

#ifdef __x86_64__
namespace {

// Checks the instructions of -march=x86-64-v3 other than AVX2, FMA and BMI. Not every compiler has
// names for them in __builtin_cpu_supports().
bool has_lzcnt_movbe_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_MOVBE) == 0 || (c & bit_F16C) == 0)
    return false;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}

}  // namespace
#endif

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> sets = {&baseline::table()};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_lzcnt_movbe_f16c()) {
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

const Kernels& choose_kernels(const char* name) {
  const std::vector<const Kernels*> sets = runnable_kernels();
  if (name == nullptr || *name == '\0') return *sets.back();
  std::string names;
  for (const Kernels* set : sets) {
    if (std::string_view(set->isa) == name) return *set;
    names += (names.empty() ? "" : ", ") + std::string(set->isa);
  }
  throw ConfigError("config.bad-value", {.what = "HASTEN_CPU_KERNELS",
                                         .got = std::string("'") + name + "'",
                                         .expected = "one that this CPU can run: " + names,
                                         .hint = "leave it out for the fastest"});
}

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels(std::getenv("HASTEN_CPU_KERNELS"));
  return chosen;
}

Dropout Dropout::make(double p, std::uint64_t seed) {
  if (p == 1) return {.seed = seed, .threshold = 65536, .scale = 0.0f};
  // If p is below 1, some elements are kept, so that the expectation equals x.
  const auto threshold = static_cast<std::uint32_t>(std::min(std::lround(p * 65536), 65535L));
  return {.seed = seed,
          .threshold = threshold,
          .scale = static_cast<float>(65536.0 / (65536.0 - threshold))};
}

}  // namespace hasten::ops
