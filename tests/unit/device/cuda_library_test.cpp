#include "device/cuda/cuda_library_loader.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include "device/known_devices.h"
#include "hasten/base/files.h"
#include "unit/check_in_fork.h"

namespace device_cuda_library_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

bool has_gpus() { return at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() == 3; }

// Returns how often the library was asked for the number of GPUs.
int cuda_library_counts() {
  return *static_cast<const int*>(dlsym(RTLD_DEFAULT, "hasten_test_gpu_counts"));
}

}  // namespace

TEST_CASE("CUDA library: it is loaded if there is a driver, also after LibTorch was asked for it") {
  const fs::path library = HASTEN_BUILD "/tests/cuda/libhasten_test_cuda.so";
  REQUIRE(fs::exists(library));
  const TemporaryDirectory folder;
  const fs::path driver = folder.path() / "nvidiactl", none = folder.path() / "none";
  write_file_atomically(driver, "");
  CHECK_FALSE(at::hasCUDA());  // LibTorch keeps this answer

  CHECK(check_in_fork([&] {
    return load_cuda_library({.driver = none, .other_driver = none, .file = library}).empty() &&
           !at::hasCUDA();
  }));
  CHECK(check_in_fork([&] {
    return load_cuda_library({.driver = driver, .other_driver = none, .file = library}).empty() &&
           has_gpus();
  }));
  CHECK(check_in_fork([&] {
    const CudaLibrary twice{.driver = none, .other_driver = driver, .file = library};
    return load_cuda_library(twice).empty() && load_cuda_library(twice).empty() && has_gpus();
  }));
}

// CUDA does not work in the forks of a process that has counted the GPUs.
TEST_CASE("CUDA library: the check before a fork neither loads it nor counts the GPUs") {
  cuda().check_fork();
  CHECK_FALSE(is_cuda_library_loaded());
  const TemporaryDirectory folder;
  const fs::path driver = folder.path() / "nvidiactl";
  write_file_atomically(driver, "");
  CHECK(check_in_fork([&] {
    load_cuda_library(
        {.driver = driver, .file = HASTEN_BUILD "/tests/cuda/libhasten_test_cuda.so"});
    cuda().check_fork();
    return is_cuda_library_loaded() && cuda_library_counts() == 0;
  }));
}

TEST_CASE("CUDA library: one that is missing is no error, and one that does not load is") {
  const TemporaryDirectory folder;
  const fs::path driver = folder.path() / "nvidiactl", none = folder.path() / "none";
  const fs::path broken = folder.path() / "broken.so";
  write_file_atomically(driver, "");
  write_file_atomically(broken, "no library");
  CHECK(load_cuda_library({.driver = driver, .other_driver = none, .file = none}) == "");
  const std::string reason =
      load_cuda_library({.driver = driver, .other_driver = none, .file = broken});
  CHECK(reason.find("broken.so") != reason.npos);
  CHECK_FALSE(at::hasCUDA());
}

}  // namespace device_cuda_library_test
