// File: anatomy/dry_gpu.h (internal)
// A GPU that is not there: what LibTorch asks a device of its kind, answered without one. While a
// DryGpu lives this process has a device cuda:0, whose tensors are dry tensors and whose memory is
// a simulated caching allocator.
//
// Stand-ins, each of which LibTorch keeps in a place of its own: the device guard, the hooks that
// tell whether CUDA is there, the device's allocator, the choice of the attention kernel, and an
// autograd engine with a thread for the device. Where a real GPU is there its guard and hooks are
// used.
//
// Thread rule: one at a time in a process; made and destroyed on the thread that trains.
#pragma once

#include <c10/core/Allocator.h>

#include <map>
#include <memory>
#include <thread>

#include "anatomy/caching_allocator.h"
#include "anatomy/gpu_kernels.h"
#include "hasten/config/gpus.h"

namespace c10::impl {
struct DeviceGuardImplInterface;
}

namespace hasten::anatomy {

class DryGpu {
 public:
  explicit DryGpu(const Gpu& gpu);
  DryGpu(const DryGpu&) = delete;
  DryGpu& operator=(const DryGpu&) = delete;
  ~DryGpu();

  // The one that lives, or none.
  static DryGpu* active();

  const Gpu& gpu() const { return gpu_; }
  // Tensors hold it, and may live longer than the DryGpu.
  const std::shared_ptr<CachingAllocator>& memory() const { return memory_; }

  // A product is about to run on this thread: the library takes a workspace for each thread that
  // calls it, and keeps it.
  void use(ProductLibrary library);

 private:
  const Gpu& gpu_;
  std::shared_ptr<CachingAllocator> memory_;
  std::map<std::pair<std::thread::id, ProductLibrary>, c10::DataPtr> workspaces_;
  const c10::impl::DeviceGuardImplInterface* guard_before_ = nullptr;
  void* attention_before_ = nullptr;
};

}  // namespace hasten::anatomy
