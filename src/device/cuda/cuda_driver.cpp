#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace hasten {
namespace {

// The values of CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED and
// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR. cuda.h is not installed everywhere
// hasten is built.
constexpr int kSuccess = 0, kNotInitialized = 3, kMajorCapability = 75, kMinorCapability = 76;

// Asks the driver for a device. `driver` is the library. Calls f with the device and returns what
// it returns, or `none` if there is no such GPU. Returns nullopt if the driver is not initialized.
template <class Result, class F>
std::optional<Result> ask_device(void* driver, int index, Result none, F&& f) {
  const auto find = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  if (find == nullptr) return std::nullopt;
  int device = 0;
  const int found = find(&device, index);
  if (found == kNotInitialized) return std::nullopt;
  if (found != kSuccess) return none;
  return f(device);
}

// Returns the text that a function of the driver writes about a device.
std::optional<std::string> read_text(void* driver, const char* function, int index) {
  const auto write = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, function));
  if (write == nullptr) return std::nullopt;
  return ask_device(driver, index, std::string(), [&](int device) -> std::optional<std::string> {
    std::array<char, 256> text{};
    if (write(text.data(), static_cast<int>(text.size()), device) != kSuccess) return std::nullopt;
    return text.data();
  });
}

std::optional<int> read_capability(void* driver, int index) {
  const auto read =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  if (read == nullptr) return std::nullopt;
  return ask_device(driver, index, 0, [&](int device) -> std::optional<int> {
    int major = 0, minor = 0;
    if (read(&major, kMajorCapability, device) != kSuccess ||
        read(&minor, kMinorCapability, device) != kSuccess)
      return std::nullopt;
    return 10 * major + minor;
  });
}

// Calls f with the driver's library if it is loaded.
template <class F>
auto ask_loaded_driver(F&& f) -> decltype(f(nullptr)) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return std::nullopt;
  auto answer = f(driver);
  dlclose(driver);  // drops only this function's reference; the library stays loaded
  return answer;
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
  return ask_loaded_driver(
      [&](void* driver) { return read_text(driver, "cuDeviceGetPCIBusId", index); });
}

std::optional<int> compute_capability_of_gpu(int index) {
  return ask_loaded_driver([&](void* driver) { return read_capability(driver, index); });
}

std::optional<std::string> name_of_gpu(int index) {
  return ask_loaded_driver(
      [&](void* driver) { return read_text(driver, "cuDeviceGetName", index); });
}

}  // namespace hasten
