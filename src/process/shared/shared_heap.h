// File: process/shared/shared_heap.h (internal)
// Tensors that the other ranks of a machine can read and write in place, so that sums need no
// copies. The tensors are in the ranks' shared memory, in which each rank has a range.
//
//   const at::Tensor bucket = heap->empty(elements, at::kFloat);
//   const SharedHeap::Location location = heap->find_location(bucket);  // sent to the other ranks
//   std::byte* theirs = heap->at(1, location_of_rank_1);  // rank 1's tensor, in this process
//
// Thread rule: any thread for empty(), its tensors and find_location(); one thread at a time for
// at().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "process/consensus/store_exchange.h"
#include "process/shared/shared_memory.h"

namespace hasten {

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  struct Location {
    // The range in the shared memory, in whole pages. An offset of -1 means that there is none.
    std::int64_t offset = -1, bytes = 0;
    // The number of tensors that the rank had freed when the location was determined.
    std::int64_t released_count = 0;
    bool is_none() const { return offset < 0; }
  };

  SharedHeap(std::shared_ptr<const SharedMemory> memory, const RankOptions& options)
      : memory_(std::move(memory)),
        rank_(options.rank),
        others_(static_cast<std::size_t>(options.size)) {}

  // Returns an uninitialized tensor of one dimension. It is an ordinary tensor if there is no room,
  // if it is empty, or if it is not on the CPU. A tensor in the shared memory keeps the heap alive.
  at::Tensor empty(std::int64_t elements, const at::TensorOptions& options);

  // Returns no location (is_none) unless the tensor begins at the same address as a tensor made by
  // empty().
  Location find_location(const at::Tensor& tensor) const;
  // Returns the address in this process of a location of `rank`. Throws IoError
  // "process.shared-memory" if this process has no room for another view.
  std::byte* at(std::int64_t rank, const Location& location);

 private:
  struct Allocation;
  // The views of one rank's tensors, and its Location::released_count when they were made.
  struct Views {
    std::int64_t released_count = 0;
    std::map<std::int64_t, std::unique_ptr<SharedMemory::View>> by_offset;
  };

  std::shared_ptr<const SharedMemory> memory_;
  std::int64_t rank_;
  std::vector<Views> others_;  // by rank

  mutable std::mutex mutex_;
  std::int64_t used_ = 0;  // used bytes of this rank's range, which are never reused
  std::int64_t released_count_ = 0;
  std::map<const void*, const Allocation*> allocations_;  // by the address at which a tensor begins
};

}  // namespace hasten
