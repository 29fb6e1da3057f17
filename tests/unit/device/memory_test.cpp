#include "hasten/device/memory.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <regex>
#include <sstream>
#include <vector>

#include "device/cuda/nvml.h"
#include "unit/check_in_fork.h"
#include "unit/scoped_environment.h"

namespace device_memory_test {

using namespace hasten;

namespace {

// True if these are the memory and the capability of GPU `number` of tests/nvml/nvml.cpp.
bool is_gpu(int index, int number) {
  const std::int64_t total = number == 0 ? 16160 : 40960;
  return gpu_memory_total(index) == (total << 20) &&
         compute_capability(index) == (number == 0 ? 70 : 80);
}

}  // namespace

TEST_CASE("memory: touched memory appears in the host's figures and stays in the peak") {
  const HostMemory before = host_memory();
  CHECK(before.resident > 1 << 20);
  CHECK(before.peak_resident >= before.resident / 2);  // the two use different counters
  std::int64_t with_block = 0;
  {
    std::vector<char> block(200 << 20);
    for (std::size_t i = 0; i < block.size(); i += 4096) block[i] = 1;
    with_block = host_memory().resident;
    CHECK(with_block - before.resident > 190 << 20);
  }
  CHECK(host_memory().peak_resident >= with_block - (16 << 20));
}

TEST_CASE("memory: the summary matches the documentation, or shows the host without a GPU") {
  std::ostringstream out;
  print_gpu_utilization(out);
  const bool gpu = gpu_memory_used().has_value();
  CHECK(std::regex_match(out.str(), std::regex(gpu ? "GPU memory occupied: [0-9]+ MB\\.\n"
                                                   : "Host memory occupied: [0-9]+ MB "
                                                     "\\(no GPU\\)\\.\n")));
}

TEST_CASE("memory: a missing GPU has no figures, and its cache is empty") {
  CHECK_FALSE(gpu_memory_used(1000).has_value());
  empty_device_cache();
}

// tests/CMakeLists.txt runs the tests of NVML again with a replacement for it (tests/nvml).
TEST_CASE("memory: NVML's figures are read if the library exists, or else absent") {
  if (std::getenv("HASTEN_TEST_NVML") != nullptr) {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK(gpu_memory_used() == (std::int64_t{2631} << 20));
    CHECK(gpu_memory_total() == (std::int64_t{16160} << 20));
    CHECK(gpu_memory_used(1) == (std::int64_t{512} << 20));
    CHECK_FALSE(gpu_memory_used(2).has_value());
    std::ostringstream out;
    print_gpu_utilization(out);
    CHECK(out.str() == "GPU memory occupied: 2631 MB.\n");
  } else {
    CHECK(gpu_memory_used().has_value() == gpu_memory_total().has_value());
  }
}

TEST_CASE("memory: NVML's GPUs are those that CUDA_VISIBLE_DEVICES names") {
  if (std::getenv("HASTEN_TEST_NVML") == nullptr) return;
  const auto visible = [](const char* value) {
    return ScopedVariable("CUDA_VISIBLE_DEVICES", value);
  };
  {
    const auto one = visible("1");
    CHECK(is_gpu(0, 1));
    CHECK_FALSE(gpu_memory_total(1).has_value());
    CHECK(compute_capability(1) == 0);
  }
  {
    const auto swapped = visible("1,0");
    CHECK(is_gpu(0, 1));
    CHECK(is_gpu(1, 0));
  }
  {
    const auto uuid = visible("GPU-00000000-0000-0000-0000-000000000065");
    CHECK(is_gpu(0, 1));
  }
  for (const char* none : {"", "-1", "2", "GPU-7"}) {
    CAPTURE(none);
    const auto variable = visible(none);
    CHECK_FALSE(gpu_memory_total().has_value());
  }
}

TEST_CASE("memory: NVML's GPUs are found by the addresses that CUDA's driver knows") {
  const bool has_real_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  if (std::getenv("HASTEN_TEST_NVML") == nullptr || has_real_driver) return;
  CHECK(check_in_fork([] {
    void* const driver = dlopen(HASTEN_BUILD "/tests/cuda_driver/libcuda.so.1", RTLD_NOW);
    if (driver == nullptr || !is_gpu(0, 0)) return false;  // the driver is not initialized
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    return is_gpu(0, 1) && is_gpu(1, 0) && !gpu_memory_total(2).has_value();
  }));
}

}  // namespace device_memory_test
