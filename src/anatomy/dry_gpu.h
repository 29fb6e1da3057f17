// File: anatomy/dry_gpu.h (internal)
// Simulates a GPU that the machine does not have. It answers the calls that LibTorch makes to a
// CUDA device. While a DryGpu exists, this process has a device cuda:0. Its tensors are dry
// tensors, and its memory is a simulated caching allocator.
//
// It replaces six things that LibTorch keeps in different places: the device guard, the hooks that
// report whether CUDA is available, the device's allocator, the choice of the attention kernel, the
// calls of cuDNN for recurrent layers, and the autograd engine, which needs a thread for the
// device. If LibTorch's CUDA library is loaded, the guard, the hooks and the allocator remain
// LibTorch's, unless simulate_gpus_without_cuda() was called.
//
// Thread rule: one at a time in a process; made and destroyed on the thread that trains.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "anatomy/caching_allocator.h"
#include "anatomy/gpu_kernels.h"
#include "anatomy/gpu_recurrent.h"
#include "anatomy/host_waits.h"
#include "hasten/machine/gpus.h"

namespace c10::impl {
struct DeviceGuardImplInterface;
}

namespace hasten::anatomy {

// From now on, a DryGpu also replaces the guard, the hooks and the allocator of LibTorch's CUDA
// library, and does not restore them. Call it in a fork of a process that has used a GPU, because
// every CUDA call fails there.
void simulate_gpus_without_cuda();

class DryGpu {
 public:
  // `gpu` has to outlive the object. Throws UsageError "anatomy.two-gpus" if there is already a
  // DryGpu, and "anatomy.cuda-without-gpu" for a LibTorch with CUDA on a machine without a GPU.
  explicit DryGpu(const Gpu& gpu);
  DryGpu(const DryGpu&) = delete;
  DryGpu& operator=(const DryGpu&) = delete;
  ~DryGpu();

  // Returns the current DryGpu, or null.
  static DryGpu* active();

  const Gpu& gpu() const { return gpu_; }
  // Tensors share the ownership of the allocator and may outlive the DryGpu.
  const std::shared_ptr<CachingAllocator>& memory() const { return memory_; }
  // Takes memory of the current stream.
  CachingAllocator::Block* allocate(std::int64_t bytes);
  HostWaits& waits() { return waits_; }

  // Begins or ends the recording of a CUDA graph. The graph takes separate memory.
  void record_graph(bool is_recorded);
  // Call this before a product runs on this thread. The library takes a workspace for each thread
  // that calls it, and keeps it. A graph is recorded in a different stream, which has separate
  // workspaces.
  void reserve_workspace(ProductLibrary library);
  // Returns the state of cuDNN's random numbers. The first call allocates its memory.
  const at::Tensor& cudnn_dropout_state();

 private:
  const Gpu& gpu_;
  std::shared_ptr<CachingAllocator> memory_;
  HostWaits waits_;
  std::map<std::tuple<std::thread::id, ProductLibrary, bool>, c10::DataPtr> workspaces_;
  bool records_graph_ = false;
  at::Tensor cudnn_dropout_state_;
  SimulatedRecurrentLayers recurrent_layers_;
  const c10::impl::DeviceGuardImplInterface* previous_guard_ = nullptr;
  void* previous_attention_ = nullptr;
};

}  // namespace hasten::anatomy
