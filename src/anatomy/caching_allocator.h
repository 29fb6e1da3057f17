// File: anatomy/caching_allocator.h (internal)
// Simulates LibTorch's caching allocator for GPUs on a machine without one: which bytes of which
// segment each request takes, and how much freed memory is kept for later requests. The rules are
// those of c10/cuda/CUDACachingAllocator.cpp with its default settings. Requests are rounded up to
// 512 bytes. Requests up to 1 MiB are cut from segments of 2 MiB, requests below 10 MiB from
// segments of 20 MiB, and a larger one gets a segment of its own, rounded up to 2 MiB. The smallest
// free block that fits is used, and split if enough is left over. Adjacent free blocks are merged.
// Segments that are entirely free are returned to the device only when it has no memory left, or by
// empty_cache(). Of several free blocks of the best size, the one with the lowest address is used.
// CUDA gives a new segment an address below those of all earlier ones: with this order, and not
// with the opposite one, the simulation holds as much as LibTorch on an H200 (driver 580, CUDA 13).
//
//   CachingAllocator memory(std::int64_t{16} << 30);
//   auto* block = memory.allocate(1000);               // 1024 bytes of a segment of 2 MiB
//   memory.reserved();                                 // 2097152
//   memory.free(block);
//
// Memory that is taken while a CUDA graph is recorded has a pool of its own, whose segments are never
// returned: the graph uses their addresses.
//
// It simulates one stream. Thread rule: allocate, free and empty_cache may be called from any
// thread (calls are serialized); the figures are read without a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace hasten::anatomy {

// Returns the bytes of the segment that is taken from the device for a request. LibTorch's message
// about memory that runs out shows this number.
std::int64_t segment_bytes(std::int64_t requested);

class CachingAllocator {
 public:
  struct Block {
    std::int64_t bytes = 0;
    std::int64_t address = 0;  // a simulated address, unique in this object
    bool small = false, free = false, of_graph = false;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment, or null
  };

  // `capacity` is the memory of the device in bytes; 0: unlimited.
  explicit CachingAllocator(std::int64_t capacity = 0) : capacity_(capacity) {}

  // `bytes` has to be positive. The block belongs to this object. Never fails: memory that the
  // device lacks is counted in missing() and allocated all the same, so that the rest of the
  // program is still measured.
  Block* allocate(std::int64_t bytes);
  void free(Block* block);
  // Returns the segments that are entirely free to the device.
  void empty_cache();
  // Sets whether requests from now on are those of a graph that is being recorded.
  void record_graph(bool is_recorded);

  // Memory that was taken from the device at once, with its blocks in the order of addresses.
  struct Segment {
    std::int64_t address = 0, bytes = 0;
    bool small = false;
    std::vector<const Block*> blocks;
  };
  // All segments, in the order of addresses.
  std::vector<Segment> segments() const;
  // Sets a function that is called when a segment is taken from the device or returned to it.
  void on_segment(std::function<void(bool is_taken, const Segment&)> listener) {
    listener_ = std::move(listener);
  }

  std::int64_t allocated() const { return allocated_; }
  std::int64_t reserved() const { return reserved_; }
  std::int64_t peak_allocated() const { return peak_allocated_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  // How often free segments were returned to make room. The program goes on, but each time costs a
  // wait for all of the device's work.
  std::int64_t retries() const { return retries_; }
  // The most bytes by which the device was too small; 0 if everything fitted.
  std::int64_t missing() const { return missing_; }

 private:
  struct BySizeThenAddress {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  using Pool = std::set<Block*, BySizeThenAddress>;

  // The free blocks of one kind of memory.
  struct Pools {
    Pool small, large;
  };

  Pool& pool_of(const Block& block) {
    Pools& pools = block.of_graph ? of_graphs_ : usual_;
    return block.small ? pools.small : pools.large;
  }
  Block* new_block(const Block& block);
  Block* new_segment(std::int64_t bytes, bool small);
  void split(Block* block, std::int64_t bytes);
  void merge(Block* left, Block* right);
  void release_free_segments();

  mutable std::mutex mutex_;
  std::int64_t capacity_;
  std::function<void(bool is_taken, const Segment&)> listener_;
  std::deque<Block> blocks_;
  std::vector<Block*> unused_;  // elements of blocks_ that are not in use
  Pools usual_, of_graphs_;
  bool records_graph_ = false;
  std::int64_t lowest_address_ = std::int64_t{1} << 46;
  std::int64_t allocated_ = 0, reserved_ = 0, peak_allocated_ = 0, peak_reserved_ = 0;
  std::int64_t retries_ = 0, missing_ = 0;
};

}  // namespace hasten::anatomy
