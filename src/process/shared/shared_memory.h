// File: process/shared/shared_memory.h (internal)
// Memory that all ranks of a group share if they are processes of one machine.
//
//   const auto memory = shared_memory(*store, "sum", {.rank = 0, .size = 2}, bytes);
//   if (memory) ...
//
// It has no name in a file system, so nothing remains of it when its processes have ended, even if
// they were killed. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/descriptor.h"
#include "process/consensus/store_exchange.h"

namespace hasten {

class SharedMemory {
 public:
  // The bytes of a huge page. A view uses huge pages if the system has them, the view has at least
  // this size, and its offset is a multiple of this size.
  static constexpr std::size_t kHugePage = std::size_t{1} << 21;
  // Returns the bytes rounded up to whole pages of the system.
  static std::size_t whole_pages(std::size_t bytes);

  // A range of the memory that is mapped into this process, until the view is destroyed.
  class View {
   public:
    View(void* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View();

    std::byte* data() const { return static_cast<std::byte*>(at_); }
    std::size_t size() const { return bytes_; }

   private:
    void* at_;
    std::size_t bytes_;
  };

  SharedMemory(std::unique_ptr<Descriptor> file, std::unique_ptr<View> beginning)
      : file_(std::move(file)), beginning_(std::move(beginning)) {}

  // The memory that all ranks have from the start.
  std::byte* data() const { return beginning_->data(); }
  // The size of that memory in bytes.
  std::size_t size() const { return beginning_->size(); }

  // Allocates more memory, in whole pages, at any offset after the memory of data(). One rank calls
  // it and sends the offset to the others. Returns null if there is no room.
  std::unique_ptr<View> allocate(std::int64_t offset, std::size_t bytes) const;
  // Returns a view of memory that a rank has allocated, or null if this process's address space has
  // no room for it.
  std::unique_ptr<View> view(std::int64_t offset, std::size_t bytes) const;
  // Frees the pages at once, even if processes have views of them. Those views must not be used any
  // more.
  void release(std::int64_t offset, std::size_t bytes) const;

 private:
  std::unique_ptr<Descriptor> file_;
  std::unique_ptr<View> beginning_;
};

// Returns `bytes` zero bytes that all ranks share. Returns null on every rank if one of them cannot
// open the memory (it runs on another machine, in another container or as another user), or if its
// `required_match` differs from rank 0's. All ranks must call it; a `name` may be used once per
// store. Waits for the others within the store's timeout. Throws what the store throws.
std::unique_ptr<SharedMemory> shared_memory(c10d::Store& store, const std::string& name,
                                            const RankOptions& options, std::size_t bytes,
                                            const std::string& required_match = "");

}  // namespace hasten
