#include "device/cuda/cuda_library.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "hasten/base/files.h"

namespace device_cuda_library_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

bool has_gpus() { return at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() == 3; }

// Returns what a function returns in a process of its own: a library that is loaded stays.
bool in_a_process(const std::function<bool()>& function) {
  const pid_t child = fork();
  if (child == 0) _exit(function() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("CUDA library: it is loaded if there is a driver, also after LibTorch was asked for it") {
  const fs::path library = HASTEN_BUILD "/tests/cuda/libhasten_test_cuda.so";
  REQUIRE(fs::exists(library));
  const TemporaryDirectory folder;
  const fs::path driver = folder.path() / "nvidiactl", none = folder.path() / "none";
  write_file_atomically(driver, "");
  CHECK_FALSE(at::hasCUDA());  // LibTorch keeps this answer

  CHECK(in_a_process([&] {
    return load_cuda_library({.driver = none, .other_driver = none, .file = library}).empty() &&
           !at::hasCUDA();
  }));
  CHECK(in_a_process([&] {
    return load_cuda_library({.driver = driver, .other_driver = none, .file = library}).empty() &&
           has_gpus();
  }));
  CHECK(in_a_process([&] {
    const CudaLibrary twice{.driver = none, .other_driver = driver, .file = library};
    return load_cuda_library(twice).empty() && load_cuda_library(twice).empty() && has_gpus();
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
