// File: process/shared_heap.h (internal)
// Tensors that the other ranks of a machine can read and write where they are, so that nothing need
// be copied before it is added up. They lie in the ranks' common memory, a range of it for each.
//
//   const at::Tensor bucket = heap->empty(elements, at::kFloat);
//   const SharedHeap::Place place = heap->place_of(bucket);   // told to the others
//   std::byte* theirs = heap->at(1, place_of_rank_1);         // rank 1's, here
//
// Thread rule: any thread for empty(), its tensors and place_of(); one at a time for at().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "process/rank_options.h"
#include "process/shared_memory.h"

namespace hasten {

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  struct Place {
    std::int64_t offset = -1, bytes = 0;  // in the common memory, in whole pages; none
    std::int64_t given_back = 0;          // how many tensors the rank has freed by then
    bool is_none() const { return offset < 0; }
  };

  SharedHeap(std::shared_ptr<const SharedMemory> memory, const RankOptions& options)
      : memory_(std::move(memory)),
        rank_(options.rank),
        others_(static_cast<std::size_t>(options.size)) {}

  // Of one dimension, with whatever is there; an ordinary one where there is no room, or another
  // device is asked for. It keeps the memory alive.
  at::Tensor empty(std::int64_t elements, const at::TensorOptions& options);

  // None unless it begins where a tensor of empty() does.
  Place place_of(const at::Tensor& tensor) const;
  // Throws IoError "process.shared-memory" where the system has no room for another view of it.
  std::byte* at(std::int64_t rank, const Place& place);

 private:
  struct Lease;
  struct Views {
    std::int64_t given_back = 0;
    std::map<std::int64_t, std::unique_ptr<SharedMemory::View>> by_offset;
  };

  std::shared_ptr<const SharedMemory> memory_;
  std::int64_t rank_;
  std::vector<Views> others_;  // by rank

  mutable std::mutex mutex_;
  std::int64_t used_ = 0;  // of this rank's range; none of it is used twice
  std::int64_t given_back_ = 0;
  std::map<const void*, const Lease*> leases_;  // by where a tensor begins
};

}  // namespace hasten
