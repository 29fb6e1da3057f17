#include "anatomy/dry_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <typeinfo>
#include <utility>

#include "anatomy/cuda_stub_slot.h"
#include "anatomy/dry_graphs.h"
#include "anatomy/dry_tensor.h"
#include "autograd/engine.h"
#include "device/cuda/simulated_gpu.h"
#include "hasten/base/error.h"

namespace hasten::anatomy {
namespace {

std::atomic<DryGpu*> current_simulation = nullptr;
std::atomic<bool> replaces_cuda_library = false;

void record_wait(const char* what) {
  if (DryGpu* const gpu = current_simulation) gpu->waits().add(what);
}

// The current stream of a thread: 0 for the computation, 1 for copies.
thread_local c10::StreamId stream_of_thread = 0;

// One device, with a stream for the computation and one for copies. Events complete immediately.
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  static c10::Device device() { return {c10::kCUDA, 0}; }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  c10::Device getDevice() const override { return device(); }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(stream_of_thread); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(1); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(1); }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(std::exchange(stream_of_thread, next.id()));
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { record_wait("stream"); }
  void synchronizeEvent(void*) const override { record_wait("event"); }
  void synchronizeDevice(const c10::DeviceIndex) const override { record_wait("device"); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0; }
};

// Allocates CPU memory and records its addresses, so that LibTorch finds it pinned.
class PinnedMemory final : public c10::Allocator {
 public:
  static PinnedMemory& instance() {
    static PinnedMemory& one = *new PinnedMemory;
    return one;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    void* const address = memory.get();
    if (address == nullptr) return memory;
    const std::lock_guard lock(mutex_);
    blocks_.emplace(address, std::move(memory));
    return {address, address, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool owns(const void* address) const {
    const std::lock_guard lock(mutex_);
    return blocks_.count(address) > 0;
  }

 private:
  static void release(void* address) {
    PinnedMemory& own = instance();
    const std::lock_guard lock(own.mutex_);
    own.blocks_.erase(address);
  }
  mutable std::mutex mutex_;
  std::map<const void*, c10::DataPtr> blocks_;
};

// The simulated cuDNN is version 9.15.
constexpr long kCudnnVersion = 91500;

// Answers the questions that LibTorch asks its CUDA library.
struct Hooks : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex current_device() const override { return 0; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(at::DeviceIndex) const override {}
  at::DeviceIndex exchangeDevice(at::DeviceIndex) const override { return 0; }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex) const override { return 0; }
  void deviceSynchronize(at::DeviceIndex) const override { record_wait("device"); }
  bool isPinnedPtr(const void* address) const override {
    return PinnedMemory::instance().owns(address);
  }
  // With these functions, LibTorch calls cuDNN for recurrent layers and for batch norm.
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return kCudnnVersion; }
  long versionRuntimeCuDNN() const override { return kCudnnVersion; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::instance(); }
  at::Allocator* getCUDADeviceAllocator() const override { return c10::GetAllocator(c10::kCUDA); }
  // A CPU generator keeps seeds and states as the generator of a GPU does.
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    static const at::Generator one = at::detail::createCPUGenerator();
    return one;
  }
  at::Generator getNewGenerator(at::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

// Serves requests for the device's memory that do not come from tensors, and empties the cache.
struct DeviceMemory final : c10::DeviceAllocator {
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    if (DryGpu* const gpu = DryGpu::active()) gpu->memory()->empty_cache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::DataPtr allocate(std::size_t bytes) override {
    return dry_memory(static_cast<std::int64_t>(bytes), Guard::device());
  }
  void copy_data(void*, const void*, std::size_t) const override {}
};

// Returns LibTorch's hooks. LibTorch creates this object at the first query and keeps it for the
// process.
at::CUDAHooksInterface& libtorch_hooks() {
  return const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
}

// True if LibTorch's own CUDA library is loaded: its hooks have a different type. Call this only
// while there is no DryGpu.
bool has_cuda_library() {
  const at::CUDAHooksInterface& hooks = libtorch_hooks();
  return typeid(hooks) != typeid(at::CUDAHooksInterface);
}

// Changes the type of LibTorch's hooks. Registering hooks has an effect only before LibTorch's
// first query, and a program may have queried before it makes a DryGpu. So this function constructs
// an object of the new type in the memory of LibTorch's object. Neither type has members.
template <class Type>
void replace_hooks() {
  static_assert(sizeof(Type) == sizeof(at::CUDAHooksInterface));
  new (&libtorch_hooks()) Type;
}

std::atomic<const c10::impl::DeviceGuardImplInterface*>& guard_slot() {
  return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)];
}

}  // namespace

void simulate_gpus_without_cuda() { replaces_cuda_library = true; }

DryGpu* DryGpu::active() { return current_simulation; }

CachingAllocator::Block* DryGpu::allocate(std::int64_t bytes) {
  // The guard is LibTorch's if its CUDA library is loaded.
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return memory_->allocate(bytes, guard.getStream(Guard::device()).id());
}

DryGpu::DryGpu(const Gpu& gpu)
    : gpu_(gpu), memory_(std::make_shared<CachingAllocator>(gpu.memory - gpu.context)) {
  static Guard& guard = *new Guard;
  static DeviceMemory& device_memory = *new DeviceMemory;
  if (current_simulation) {
    throw UsageError("anatomy.two-gpus",
                     {.what = "dry run for a GPU",
                      .got = "a second DryRun for a GPU",
                      .expected = "one at a time in a process",
                      .hint = "destroy the first DryRun before making another"});
  }
  const bool cuda_library = has_cuda_library();
  if (cuda_library && !at::hasCUDA()) {
    throw UsageError("anatomy.cuda-without-gpu",
                     {.what = "dry run for a GPU",
                      .got = "LibTorch's CUDA build on a machine without a GPU",
                      .expected = "LibTorch's CPU build, or a machine with a GPU",
                      .hint = "build hasten with LibTorch's CPU build"});
  }
  install_engine();
  current_simulation = this;
  previous_guard_ = guard_slot().load();
  if (!cuda_library || replaces_cuda_library) {
    guard_slot() = &guard;
    c10::SetAllocator(c10::kCUDA, &device_memory);
    replace_hooks<Hooks>();
  }
  previous_attention_ = cuda_slot(at::native::_fused_sdp_choice_stub);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  // The CUDA context takes memory from the first tensor on, as nvidia-smi shows.
  set_simulated_gpu({.used =
                         [memory = memory_, context = gpu.context] {
                           return memory->peak_reserved() > 0 ? memory->reserved() + context : 0;
                         },
                     .total = gpu.memory,
                     .compute_capability = gpu.compute_capability,
                     .graph_recorder = dry_graph_recorder});
}

DryGpu::~DryGpu() {
  set_simulated_gpu({});
  workspaces_.clear();
  cudnn_dropout_state_ = at::Tensor();
  cuda_slot(at::native::_fused_sdp_choice_stub) = previous_attention_;
  current_simulation = nullptr;
  if (replaces_cuda_library) return;
  guard_slot() = previous_guard_;
  const at::CUDAHooksInterface& hooks = libtorch_hooks();
  if (typeid(hooks) == typeid(Hooks)) replace_hooks<at::CUDAHooksInterface>();
}

const at::Tensor& DryGpu::cudnn_dropout_state() {
  if (!cudnn_dropout_state_.defined()) {
    cudnn_dropout_state_ = at::empty({cudnn_dropout_state_bytes(gpu_)},
                                     at::TensorOptions().device(Guard::device()).dtype(at::kByte));
  }
  return cudnn_dropout_state_;
}

void DryGpu::record_graph(bool is_recorded) {
  records_graph_ = is_recorded;
  if (is_recorded) {
    memory_->empty_cache();
    reserve_workspace(ProductLibrary::cublas);  // before the graph's separate memory begins
  }
  memory_->record_graph(is_recorded);
}

void DryGpu::reserve_workspace(ProductLibrary library) {
  if (library == ProductLibrary::none) return;
  // cuBLASLt is called with a handle of cuBLAS, which has its own workspace.
  if (library == ProductLibrary::cublas_lt) reserve_workspace(ProductLibrary::cublas);
  c10::DataPtr& workspace = workspaces_[{std::this_thread::get_id(), library, records_graph_}];
  if (workspace) return;
  workspace =
      dry_memory(library == ProductLibrary::cublas ? cublas_workspace(gpu_) : kCublasLtWorkspace,
                 Guard::device());
}

}  // namespace hasten::anatomy
