// A library that stands in for LibTorch's CUDA library, to be loaded while a test runs. It says that
// there are three GPUs.
#include <ATen/detail/CUDAHooksInterface.h>

namespace {

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  at::DeviceIndex deviceCount() const override { return 3; }
};

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
