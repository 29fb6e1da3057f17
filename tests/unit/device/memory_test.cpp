#include "hasten/device/memory.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <regex>
#include <sstream>
#include <vector>

namespace device_memory_test {

using namespace hasten;

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

// tests/CMakeLists.txt runs this test again with a replacement for NVML (tests/nvml).
TEST_CASE("memory: NVML's figures are read if the library exists, or else absent") {
  if (std::getenv("HASTEN_TEST_NVML") != nullptr) {
    CHECK(gpu_memory_used() == (std::int64_t{2631} << 20));
    CHECK(gpu_memory_total() == (std::int64_t{16160} << 20));
    CHECK_FALSE(gpu_memory_used(1).has_value());
    std::ostringstream out;
    print_gpu_utilization(out);
    CHECK(out.str() == "GPU memory occupied: 2631 MB.\n");
  } else {
    CHECK(gpu_memory_used().has_value() == gpu_memory_total().has_value());
  }
}

}  // namespace device_memory_test
