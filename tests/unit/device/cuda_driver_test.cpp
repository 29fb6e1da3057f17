#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "device/cuda/nvml.h"
#include "device/device.h"
#include "device/known_devices.h"
#include "hasten/base/log.h"
#include "unit/check_in_fork.h"
#include "unit/code_of.h"

namespace device_cuda_driver_test {

using namespace hasten;

TEST_CASE("CUDA driver: a process that has initialized it is not forked") {
  CHECK_FALSE(is_cuda_driver_initialized());
  CHECK(check_in_fork([] {
    const auto is_refused = [] {
      return code_of([] { cuda().check_fork(); }) == "process.fork-after-cuda";
    };
    void* const driver = dlopen(HASTEN_BUILD "/tests/cuda_driver/libcuda.so.1", RTLD_NOW);
    if (driver == nullptr || is_cuda_driver_initialized() || is_refused()) return false;
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    return is_cuda_driver_initialized() && is_refused();
  }));
}

TEST_CASE("CUDA driver: it knows the capability of a GPU on a machine without NVML") {
  CHECK_FALSE(compute_capability_of_gpu(0).has_value());
  CHECK(check_in_fork([] {
    void* const driver = dlopen(HASTEN_BUILD "/tests/cuda_driver/libcuda.so.1", RTLD_NOW);
    if (driver == nullptr || compute_capability_of_gpu(0).has_value()) return false;
    const auto kernel = [](int index) {
      return cuda().packed_attention(at::kBFloat16, /*head_size=*/64, index);
    };
    // While the capability is not known, rows are padded, and one line reports it.
    const bool has_nvml = compute_capability(0) != 0;
    if (!has_nvml) {
      int lines = 0;
      set_log_sink([&](std::string_view) { ++lines; });
      const bool is_padded = kernel(0) == PackedAttention::none && kernel(0) == kernel(1);
      set_log_sink({});
      if (!is_padded || lines != 1) return false;
    }
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    return compute_capability_of_gpu(0) == 80 && compute_capability_of_gpu(1) == 70 &&
           compute_capability_of_gpu(2) == 0 && compute_capability(0) == 80 &&
           compute_capability(1) == 70 && compute_capability(2) == 0 &&
           (has_nvml || kernel(0) == PackedAttention::flash) &&
           kernel(1) == PackedAttention::none;  // Volta has no bfloat16
  }));
}

TEST_CASE("CUDA driver: it knows the name of a GPU") {
  CHECK(cuda().driver_name(0).empty());
  CHECK(check_in_fork([] {
    void* const driver = dlopen(HASTEN_BUILD "/tests/cuda_driver/libcuda.so.1", RTLD_NOW);
    if (driver == nullptr || name_of_gpu(0).has_value()) return false;
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    return cuda().driver_name(-1) == "NVIDIA A100-SXM4-80GB" &&
           cuda().driver_name(1) == "Tesla V100-SXM2-16GB" && cuda().driver_name(2).empty();
  }));
}

}  // namespace device_cuda_driver_test
