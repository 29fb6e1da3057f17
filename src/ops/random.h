// File: ops/random.h (internal)
// Draws a seed for a call with dropout from LibTorch's default CPU generator.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace hasten::ops {

inline std::uint64_t next_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // A handle to shared state.
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace hasten::ops
