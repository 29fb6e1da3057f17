// File: anatomy/caching_allocator.h (internal)
// LibTorch's allocator for GPUs, without the GPU: which bytes a request takes of which segment, and
// what is held back for later. The rules are those of c10/cuda/CUDACachingAllocator.cpp with its
// default settings: requests are rounded up to 512 bytes; those up to 1 MiB are cut from segments
// of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones get a segment of their own,
// rounded up to 2 MiB; the smallest free block that fits is taken and cut where enough is left
// over; free neighbours are joined; segments that are free as a whole go back to the device only
// when it has nothing left, or when asked.
//
//   CachingAllocator memory(16 << 30);
//   auto* block = memory.allocate(1000);               // 1024 bytes of a segment of 2 MiB
//   memory.reserved();                                 // 2097152
//   memory.free(block);
//
// One stream. Thread rule: any thread (calls are serialized).
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <vector>

namespace hasten::anatomy {

class CachingAllocator {
 public:
  struct Block {
    std::int64_t bytes = 0;
    std::int64_t address = 0;  // within this object's addresses
    bool small = false, free = false;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  };

  // `capacity`: the most bytes the device gives; 0: any number.
  explicit CachingAllocator(std::int64_t capacity = 0) : capacity_(capacity) {}

  // Never fails: what the device does not have is noted (missing) and given all the same, so that
  // the rest of the program is still measured. bytes > 0.
  Block* allocate(std::int64_t bytes);
  void free(Block* block);
  // Gives the segments that are free as a whole back.
  void empty_cache();

  std::int64_t allocated() const { return allocated_; }
  std::int64_t reserved() const { return reserved_; }
  std::int64_t most_allocated() const { return most_allocated_; }
  std::int64_t most_reserved() const { return most_reserved_; }
  // Segments were given back to make room: steps before the device was full, but each such time
  // costs a wait for all of its work.
  std::int64_t retries() const { return retries_; }
  // Bytes that the device did not have; 0: everything fitted.
  std::int64_t missing() const { return missing_; }

 private:
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  using Pool = std::set<Block*, Smaller>;

  Pool& pool_of(const Block& block) { return block.small ? small_ : large_; }
  Block* make(const Block& block);
  Block* new_segment(std::int64_t bytes, bool small);
  void cut(Block* block, std::int64_t bytes);
  void join(Block* left, Block* right);
  void release_free_segments();

  std::mutex mutex_;
  std::int64_t capacity_;
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;  // of blocks_, out of use
  Pool small_, large_;         // free blocks
  std::int64_t next_address_ = 0;
  std::int64_t allocated_ = 0, reserved_ = 0, most_allocated_ = 0, most_reserved_ = 0;
  std::int64_t retries_ = 0, missing_ = 0;
};

}  // namespace hasten::anatomy
