#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace hasten {
namespace {

// The values of CUDA_SUCCESS and CUDA_ERROR_NOT_INITIALIZED. cuda.h is not installed everywhere
// hasten is built.
constexpr int kSuccess = 0, kNotInitialized = 3;

// `driver` is the library.
std::optional<std::string> pci_address(void* driver, int index) {
  const auto find = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto write_address =
      reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetPCIBusId"));
  if (find == nullptr || write_address == nullptr) return std::nullopt;
  int device = 0;
  const int found = find(&device, index);
  if (found == kNotInitialized) return std::nullopt;
  if (found != kSuccess) return "";
  std::array<char, 32> text{};
  if (write_address(text.data(), static_cast<int>(text.size()), device) != kSuccess)
    return std::nullopt;
  return text.data();
}

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

std::optional<std::string> pci_address_of_gpu(int index) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return std::nullopt;
  std::optional<std::string> address = pci_address(driver, index);
  dlclose(driver);
  return address;
}

}  // namespace hasten
