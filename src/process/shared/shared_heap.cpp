#include "process/shared/shared_heap.h"

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>
#include <unistd.h>

#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The size of each rank's range, after the memory that all ranks have from the beginning. It is a
// range of offsets in the shared memory, which take no memory until they are used.
constexpr std::int64_t kRangeBytes = std::int64_t{1} << 42;

// Returns `used` rounded up to a whole huge page. The gap takes offsets but no memory.
std::int64_t round_up_to_huge_page(std::int64_t used) {
  constexpr auto kHuge = static_cast<std::int64_t>(SharedMemory::kHugePage);
  return (used + kHuge - 1) / kHuge * kHuge;
}

}  // namespace

// The memory that a tensor of empty() holds until it is freed.
struct SharedHeap::Allocation {
  std::shared_ptr<SharedHeap> heap;
  std::unique_ptr<SharedMemory::View> view;
  std::int64_t offset;
  pid_t process = getpid();

  void release() const {
    c10::profiledCPUMemoryReporter().Delete(view->data());
    const std::lock_guard lock(heap->mutex_);
    heap->allocations_.erase(view->data());
    ++heap->released_count_;
    // A fork of the rank that ends must not free the pages, which the rank still uses.
    if (process == getpid()) heap->memory_->release(offset, view->size());
  }
};

at::Tensor SharedHeap::empty(std::int64_t elements, const at::TensorOptions& options) {
  const std::size_t bytes =
      SharedMemory::whole_pages(static_cast<std::size_t>(elements) * options.dtype().itemsize());
  if (bytes == 0 || !options.device().is_cpu()) return at::empty({elements}, options);
  const std::lock_guard lock(mutex_);
  const std::int64_t begin = bytes < SharedMemory::kHugePage ? used_ : round_up_to_huge_page(used_);
  if (begin + static_cast<std::int64_t>(bytes) > kRangeBytes) return at::empty({elements}, options);
  const std::int64_t offset = (rank_ + 1) * kRangeBytes + begin;
  auto view = memory_->allocate(offset, bytes);
  if (!view) return at::empty({elements}, options);
  used_ = begin + static_cast<std::int64_t>(bytes);
  void* const data = view->data();
  const auto allocation =
      std::make_shared<Allocation>(Allocation{shared_from_this(), std::move(view), offset});
  allocations_[data] = allocation.get();
  c10::profiledCPUMemoryReporter().New(data, bytes);
  return at::from_blob(
      data, {elements}, [allocation](void*) { allocation->release(); }, options);
}

SharedHeap::Location SharedHeap::find_location(const at::Tensor& tensor) const {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(tensor.const_data_ptr());
  if (found == allocations_.end()) return {};
  const Allocation& allocation = *found->second;
  return {.offset = allocation.offset,
          .bytes = static_cast<std::int64_t>(allocation.view->size()),
          .released_count = released_count_};
}

std::byte* SharedHeap::at(std::int64_t rank, const Location& location) {
  Views& views = others_[static_cast<std::size_t>(rank)];
  if (std::exchange(views.released_count, location.released_count) != location.released_count)
    views.by_offset.clear();  // they include views of freed tensors
  auto& view = views.by_offset[location.offset];
  if (!view) view = memory_->view(location.offset, static_cast<std::size_t>(location.bytes));
  if (view) return view->data();
  throw IoError("process.shared-memory",
                {.what = str("mapping ", human_bytes(location.bytes), " of rank ", rank,
                             "'s shared memory, on rank ", rank_),
                 .got = "no free address space",
                 .hint = "set HASTEN_SHARED_MEMORY=off to send messages instead"});
}

}  // namespace hasten
