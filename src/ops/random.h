// One seed a call of an operator with dropout, drawn from LibTorch's default CPU generator.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace hasten::ops {

inline std::uint64_t next_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // a handle; the state is shared
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace hasten::ops
