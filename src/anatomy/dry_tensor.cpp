#include "anatomy/dry_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include <mutex>

namespace hasten::anatomy {
namespace {

// Addresses handed out upwards and never again: what was written by pointer into one block does not
// show in another. Four TiB at a time are a range of addresses, not memory.
class Addresses {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded > left_ && !reserve(rounded)) return nullptr;
    char* const out = next_;
    next_ += rounded;
    left_ -= rounded;
    return out;
  }

 private:
  bool reserve(std::size_t least) {
    for (std::size_t size = std::size_t{1} << 42; size >= least; size /= 4) {
      void* const range = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range == MAP_FAILED) continue;
      next_ = static_cast<char*>(range);
      left_ = size;
      return true;
    }
    return false;
  }

  std::mutex mutex_;
  char* next_ = nullptr;
  std::size_t left_ = 0;
};

Addresses& addresses() {
  static Addresses& all = *new Addresses;  // outlives every tensor
  return all;
}

struct Allocation {
  void* pointer;
  std::int64_t bytes;
  at::Device device;
};

void report(const Allocation& allocation, int sign) {
  c10::reportMemoryUsageToProfiler(allocation.pointer, sign * allocation.bytes, 0, 0,
                                   allocation.device);
}

void release(void* context) {
  const std::unique_ptr<Allocation> allocation(static_cast<Allocation*>(context));
  report(*allocation, -1);
}

}  // namespace

at::Tensor dry_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                      at::Device device) {
  const auto bytes = static_cast<std::int64_t>(
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type)));
  c10::DataPtr pointer(nullptr, device);
  if (bytes > 0) {
    auto* allocation =
        new Allocation{addresses().take(static_cast<std::size_t>(bytes)), bytes, device};
    report(*allocation, 1);
    pointer = c10::DataPtr(allocation->pointer, allocation, release, device);
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer), nullptr, /*resizable=*/false);
  const c10::DispatchKeySet keys(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), keys, c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void dry_workspace(std::int64_t bytes, at::Device device) {
  if (bytes <= 0) return;
  const Allocation allocation{addresses().take(64), bytes, device};
  report(allocation, 1);
  report(allocation, -1);
}

}  // namespace hasten::anatomy
