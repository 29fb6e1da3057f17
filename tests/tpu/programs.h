#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>

namespace hasten {

// Returns the number of programs that the plugin has compiled so far.
inline std::int64_t programs() {
  void* const plugin = dlopen(std::getenv("TPU_LIBRARY_PATH"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(plugin != nullptr);
  return reinterpret_cast<std::int64_t (*)()>(dlsym(plugin, "hasten_test_programs"))();
}

}  // namespace hasten
