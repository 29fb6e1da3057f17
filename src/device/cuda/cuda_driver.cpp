#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>

namespace hasten {
namespace {

// The value of CUDA_ERROR_NOT_INITIALIZED. cuda.h is not installed everywhere hasten is built.
constexpr int kNotInitialized = 3;

}  // namespace

bool is_cuda_driver_initialized(const char* library) {
  void* const driver = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int gpus = 0;
  const bool is_initialized = count != nullptr && count(&gpus) != kNotInitialized;
  dlclose(driver);  // drops only this function's reference; the library stays loaded
  return is_initialized;
}

}  // namespace hasten
