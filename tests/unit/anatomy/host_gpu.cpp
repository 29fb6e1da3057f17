#include "unit/anatomy/host_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "device/cuda/cuda_library_loader.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using torch::jit::Stack;

std::atomic<std::int64_t> limit_of_memory = 0, used = 0, waits_for_device = 0;
std::atomic<int> owner = 0;

void check_process() noexcept {
  if (getpid() != owner) _exit(3);
}

struct HostGuard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  static c10::Device device() {
    check_process();
    return {c10::kCUDA, 0};
  }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::Device getDevice() const override { return device(); }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  void setDevice(c10::Device) const override { check_process(); }
  void uncheckedSetDevice(c10::Device) const noexcept override { check_process(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    check_process();
  }
  void block(void*, const c10::Stream&) const override { check_process(); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override { check_process(); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    check_process();
    ++waits_for_device;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
};

struct HostHooks final : at::CUDAHooksInterface {
  void init() const override { check_process(); }
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  at::DeviceIndex deviceCount() const override {
    check_process();
    return 1;
  }
  at::DeviceIndex current_device() const override { return 0; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  void deviceSynchronize(at::DeviceIndex) const override { check_process(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    check_process();
    static const at::Generator one = at::detail::createCPUGenerator();
    return one;
  }
  at::Generator getNewGenerator(at::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

std::string mib(std::int64_t bytes) {
  return fixed(static_cast<double>(bytes) / (1 << 20), 2) + " MiB";
}

class HostMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    check_process();
    const auto size = static_cast<std::int64_t>(bytes);
    if (used + size > limit_of_memory) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", mib(size),
                       ". GPU 0 has a total capacity of ", mib(limit_of_memory), " of which ",
                       mib(limit_of_memory - used),
                       " is free. Including non-PyTorch memory, this process has ", mib(used),
                       " memory in use. If reserved but unallocated memory is large try setting "
                       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.");
    }
    used += size;
    auto* const memory = new c10::DataPtr(c10::GetCPUAllocator()->allocate(bytes));
    sizes_[memory->get()] = size;
    return {memory->get(), memory, &release, {c10::kCUDA, 0}};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* context) {
    auto* const memory = static_cast<c10::DataPtr*>(context);
    used -= sizes_[memory->get()];
    delete memory;
  }
  static inline std::map<const void*, std::int64_t> sizes_;  // one thread at a time uses it
};

HostMemory& simulated_memory() {
  static HostMemory& one = *new HostMemory;
  return one;
}

// Calls an operator's CPU kernel with the memory of its GPU tensors.
class HostCall {
 public:
  c10::IValue argument(const c10::IValue& value) {
    if (value.isTensor()) return to_host(value.toTensor());
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(to_host(each));
      return all;
    }
    return value;
  }
  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return to_gpu(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(to_gpu(each));
      return all;
    }
    return value;
  }

 private:
  static at::Tensor tensor_like(const at::Tensor& x, c10::Storage storage, c10::DispatchKey key) {
    at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                              c10::DispatchKeySet(key), x.dtype());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
    return out;
  }
  at::Tensor to_host(const at::Tensor& x) {
    if (!x.defined() || !x.is_cuda()) return x;
    void* const data = x.storage().mutable_data();
    storages_.emplace(data, x.storage());
    c10::Storage storage(c10::Storage::use_byte_size_t(), x.storage().nbytes(),
                         c10::DataPtr(data, c10::kCPU), nullptr, false);
    return tensor_like(x, std::move(storage), c10::DispatchKey::CPU);
  }
  at::Tensor to_gpu(const at::Tensor& x) {
    if (!x.defined() || !x.is_cpu()) return x;
    const auto known = storages_.find(x.storage().data());
    if (known != storages_.end() && known->first != nullptr)
      return tensor_like(x, known->second, c10::DispatchKey::CUDA);
    const std::size_t bytes = x.storage().nbytes();
    c10::DataPtr memory = bytes > 0 ? simulated_memory().allocate(bytes)
                                    : c10::DataPtr(nullptr, c10::Device(c10::kCUDA, 0));
    if (bytes > 0) std::memcpy(memory.get(), x.storage().data(), bytes);
    return tensor_like(x,
                       c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(memory),
                                    &simulated_memory(), true),
                       c10::DispatchKey::CUDA);
  }
  std::map<const void*, c10::Storage> storages_;
};

void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  check_process();
  const auto& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - static_cast<std::ptrdiff_t>(count),
                                       stack->end());
  torch::jit::drop(*stack, count);
  HostCall call;
  Stack own;
  for (const c10::IValue& each : given) own.push_back(call.argument(each));
  op.callBoxed(own);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const c10::AliasInfo* const alias = schema.returns()[i].alias_info();
    std::size_t written = count;
    for (std::size_t j = 0; alias != nullptr && alias->isWrite() && j < count; ++j) {
      const c10::AliasInfo* const of_argument = schema.arguments()[j].alias_info();
      if (of_argument != nullptr && of_argument->beforeSets() == alias->beforeSets()) written = j;
    }
    // An argument that is written to is itself the result, even if it is on the CPU.
    stack->push_back(written < count ? given[written] : call.result(own[i]));
  }
}

void register_kernels() {
  const auto kernel = [] { return torch::CppFunction::makeFromBoxedFunction<&run_on_host>(); };
  auto* const others = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA,
                                          __FILE__, __LINE__);  // never removed
  others->fallback(kernel());
  // These operators already have kernels for all devices, which would look for a CUDA kernel.
  auto* const own =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const char* name : {"copy_", "fill_.Scalar", "zero_", "_local_scalar_dense"})
    own->impl(name, kernel());
}

}  // namespace

void set_host_gpu_limit(std::int64_t limit) { limit_of_memory = limit; }

std::int64_t host_gpu_waits() { return waits_for_device; }

void use_host_gpu(std::int64_t limit) {
  owner = getpid();
  set_host_gpu_limit(limit);
  // From here on, the process has the same autograd engine as a process that has loaded LibTorch's
  // CUDA library.
  const TemporaryDirectory folder;
  const auto driver = folder.path() / "nvidiactl";
  write_file_atomically(driver, "");
  load_cuda_library({.driver = driver, .file = HASTEN_BUILD "/tests/cuda/libhasten_test_cuda.so"});
  static HostGuard& guard = *new HostGuard;
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)] = &guard;
  static_assert(sizeof(HostHooks) == sizeof(at::CUDAHooksInterface));
  new (&const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks())) HostHooks;
  c10::SetAllocator(c10::kCUDA, &simulated_memory());
  register_kernels();
}

}  // namespace hasten
