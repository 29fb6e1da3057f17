#include "anatomy/dry_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>

#include "anatomy/dry_gpu.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

// Returns ascending addresses and never reuses one, so that a write through a pointer into one
// block does not appear in another. It reserves up to 4 TiB of addresses at a time; they take no
// memory.
class Addresses {
 public:
  void allow_without_pages() {
    const std::lock_guard lock(mutex_);
    without_pages_ = true;
  }

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    // Programs write through pointers only into small tensors.
    constexpr std::size_t kMaxWrittenBytes = 1 << 16;
    if (without_pages_ && rounded > kMaxWrittenBytes) return unmapped_.take(rounded);
    const std::size_t maximum = std::size_t{1} << (without_pages_ ? 24 : 42);
    if (rounded > mapped_.left && !reserve(rounded, maximum)) {
      throw MemoryError(
          "anatomy.no-addresses",
          {.what = "a tensor of a dry run",
           .got = human_bytes(static_cast<std::int64_t>(bytes)),
           .expected = "a range of addresses, of at most 4 TiB, that the system grants",
           .hint = "see ulimit -v"});
    }
    return mapped_.take(rounded);
  }

 private:
  struct Range {
    char* next = nullptr;
    std::size_t left = 0;

    void* take(std::size_t bytes) {
      char* const out = next;
      next += bytes;
      left -= bytes;
      return out;
    }
  };

  bool reserve(std::size_t minimum, std::size_t maximum) {
    for (std::size_t size = maximum; size >= minimum; size /= 4) {
      void* const range = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range == MAP_FAILED) continue;
      mapped_ = {static_cast<char*>(range), size};
      return true;
    }
    return false;
  }

  std::mutex mutex_;
  Range mapped_;
  // Linux places nothing at these addresses by itself: programs are above 80 TiB, and libraries are
  // just below 128 TiB.
  Range unmapped_{reinterpret_cast<char*>(std::uintptr_t{1} << 44), std::size_t{1} << 45};
  bool without_pages_ = false;
};

Addresses& addresses() {
  static Addresses& all = *new Addresses;  // outlives every tensor
  return all;
}

struct Allocation {
  void* pointer = nullptr;
  std::int64_t bytes = 0;  // as the device's allocator counts them
  at::Device device = at::kCPU;
  // Set only for a GPU's memory.
  std::shared_ptr<CachingAllocator> memory;
  CachingAllocator::Block* block = nullptr;
};

std::unique_ptr<Allocation> allocate(std::int64_t bytes, at::Device device) {
  auto out = std::make_unique<Allocation>();
  out->pointer = addresses().take(static_cast<std::size_t>(bytes));
  out->bytes = bytes;
  out->device = device;
  DryGpu* const gpu = device_of(device).is_simulated() ? DryGpu::active() : nullptr;
  if (gpu == nullptr) return out;
  out->memory = gpu->memory();
  out->block = gpu->allocate(bytes);
  out->bytes = out->block->bytes;
  return out;
}

void report(const Allocation& allocation, int sign) {
  const CachingAllocator* memory = allocation.memory.get();
  c10::reportMemoryUsageToProfiler(allocation.pointer, sign * allocation.bytes,
                                   memory ? static_cast<std::size_t>(memory->allocated()) : 0,
                                   memory ? static_cast<std::size_t>(memory->reserved()) : 0,
                                   allocation.device);
}

void release(void* context) {
  const std::unique_ptr<Allocation> allocation(static_cast<Allocation*>(context));
  if (allocation->memory) allocation->memory->free(allocation->block);
  report(*allocation, -1);
}

}  // namespace

void allow_addresses_without_pages() { addresses().allow_without_pages(); }

c10::DataPtr dry_memory(std::int64_t bytes, at::Device device) {
  if (bytes <= 0) return {nullptr, device};
  Allocation* const allocation = allocate(bytes, device).release();
  report(*allocation, 1);
  return {allocation->pointer, allocation, release, device};
}

c10::Storage dry_storage(std::int64_t bytes, at::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            bytes, dry_memory(bytes, device),
                                                            nullptr, /*resizable=*/false));
}

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      c10::Storage storage) {
  const c10::DispatchKeySet keys(at::TensorOptions(storage.device()).computeDispatchKey());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys,
                                                               c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      at::Device device) {
  const auto bytes = static_cast<std::int64_t>(
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type)));
  return dry_tensor(sizes, strides, type, dry_storage(bytes, device));
}

void dry_workspaces(const std::vector<std::int64_t>& blocks, at::Device device) {
  std::vector<c10::DataPtr> workspaces;
  for (const std::int64_t bytes : blocks) workspaces.push_back(dry_memory(bytes, device));
}

std::int64_t allocated_bytes(const at::Tensor& tensor) {
  const c10::DataPtr& pointer = tensor.storage().data_ptr();
  if (pointer.get_deleter() == &release)
    return static_cast<const Allocation*>(pointer.get_context())->bytes;
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  const std::int64_t unit = device_of(tensor.device()).traits().allocation_unit;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace hasten::anatomy
