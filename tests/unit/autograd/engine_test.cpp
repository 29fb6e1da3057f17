// Autograd has threads for a device, no matter when the device appears.
#include "autograd/engine.h"

#include <doctest/doctest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include "device/cuda/cuda_library_loader.h"
#include "hasten/base/files.h"
#include "unit/check_in_fork.h"

namespace autograd_engine_test {

using namespace hasten;

namespace {

constexpr std::size_t kGpus = 3;
const at::Device kLastGpu(at::kCUDA, kGpus - 1);

struct Engine : torch::autograd::Engine {
  // Returns the number of devices for which the current engine has a thread.
  static std::size_t threads() {
    return (get_default_engine().*(&Engine::device_ready_queues_)).size();
  }
};

void run_backward_pass() { at::ones({1}).requires_grad_().backward(); }

// Loads a test library with GPUs instead of LibTorch's CUDA library.
void load_gpus() {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "nvidiactl", "");
  load_cuda_library({.driver = folder.path() / "nvidiactl",
                     .file = HASTEN_BUILD "/tests/cuda/libhasten_test_cuda.so"});
}

}  // namespace

TEST_CASE("engine: it has threads for GPUs that appear after a backward pass") {
  CHECK(check_in_fork([] {
    run_backward_pass();
    load_gpus();
    ensure_engine_thread(kLastGpu);
    run_backward_pass();
    return Engine::threads() == kGpus;
  }));
}

TEST_CASE("engine: it has threads for GPUs that appear after it was installed") {
  CHECK(check_in_fork([] {
    install_engine();
    run_backward_pass();
    load_gpus();
    run_backward_pass();
    return Engine::threads() == kGpus;
  }));
}

TEST_CASE("engine: it has threads for GPUs if it is installed after a backward pass") {
  CHECK(check_in_fork([] {
    load_gpus();
    run_backward_pass();
    install_engine();
    run_backward_pass();
    return Engine::threads() == kGpus;
  }));
}

TEST_CASE("engine: LibTorch's engine stays if it has the threads or has not started") {
  CHECK(check_in_fork([] {
    torch::autograd::Engine& libtorch = torch::autograd::Engine::get_base_engine();
    load_gpus();
    ensure_engine_thread(kLastGpu);
    run_backward_pass();
    ensure_engine_thread(kLastGpu);
    return &torch::autograd::Engine::get_default_engine() == &libtorch &&
           Engine::threads() == kGpus;
  }));
}

}  // namespace autograd_engine_test
