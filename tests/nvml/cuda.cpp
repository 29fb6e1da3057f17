// A library that replaces LibTorch's CUDA library and is loaded while a test runs. It reports three
// GPUs, and counts the queries for their number.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

extern "C" {
int hasten_test_gpu_counts = 0;
}

namespace {

constexpr at::DeviceIndex kGpus = 3;

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  at::DeviceIndex deviceCount() const override {
    ++hasten_test_gpu_counts;
    return kGpus;
  }
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::DeviceIndex deviceCount() const noexcept override { return kGpus; }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
