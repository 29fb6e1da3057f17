#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "device/known_devices.h"
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

}  // namespace device_cuda_driver_test
