// File: anatomy/caching_allocator.h (internal)
// Simulates LibTorch's caching allocator for GPUs on a machine without one. It determines which
// bytes of which segment each request takes, and how much freed memory is kept for later requests.
// The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings. Requests are
// rounded up to 512 bytes. Requests up to 1 MiB are cut from segments of 2 MiB, and requests below
// 10 MiB from segments of 20 MiB. A larger request gets its own segment, rounded up to 2 MiB. The
// allocator uses the smallest free block that fits, and splits it if enough is left over. If
// several free blocks have the best size, it uses the one with the lowest address. Adjacent free
// blocks are merged. Segments that are entirely free are returned to the device only when it has no
// memory left, or by empty_cache(). CUDA gives a new segment an address below all earlier segments.
// With this order the simulation holds as much memory as LibTorch on an H200 (driver 580, CUDA 13),
// and with the opposite order it does not.
//
//   CachingAllocator memory(std::int64_t{16} << 30);
//   auto* block = memory.allocate(1000);               // 1024 bytes of a segment of 2 MiB
//   memory.reserved();                                 // 2097152
//   memory.free(block);
//
// Memory that is taken while a CUDA graph is recorded has a separate pool, which all graphs share.
// Its segments are not returned while there is a graph, because graphs use their addresses.
//
// Each stream has separate memory. The computation runs on stream 0. Memory of another stream holds
// a batch that is copied to the device while it computes (hasten/prepare/detail/to_device.h). The
// device still computes with a batch when the host frees it and copies the next one. So such memory
// is used again by the second batch after it, as on a GPU.
//
// Thread rule: allocate, free and empty_cache may be called from any thread (calls are serialized);
// the figures are read without a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace hasten::anatomy {

// Returns the bytes of the segment that is taken from the device for a request. LibTorch's
// out-of-memory message shows this number.
std::int64_t segment_bytes(std::int64_t requested);

class CachingAllocator {
 public:
  struct Block {
    std::int64_t bytes = 0;
    std::int64_t address = 0;  // a simulated address, unique in this object
    bool small = false, free = false, in_graph_pool = false;
    std::int64_t stream = 0;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment, or null
  };

  // `capacity` is the memory of the device in bytes; 0 means unlimited.
  explicit CachingAllocator(std::int64_t capacity = 0) : capacity_(capacity) {}

  // `bytes` has to be positive, and `stream` is the current stream. The block belongs to this
  // object. Never fails: if the device lacks memory, the call counts it in missing() and still
  // returns a block, so that the rest of the program is measured too.
  Block* allocate(std::int64_t bytes, std::int64_t stream = 0);
  void free(Block* block);
  // Returns the segments that are entirely free to the device.
  void empty_cache();
  // Sets whether requests from now on belong to a graph that is being recorded.
  void record_graph(bool is_recorded);
  // Tells that no graph exists any longer. The next empty_cache() also returns their memory.
  void forget_graphs();

  // Memory that was taken from the device at once, with its blocks sorted by address.
  struct Segment {
    std::int64_t address = 0, bytes = 0;
    bool small = false;
    std::int64_t stream = 0;
    std::vector<const Block*> blocks;
  };
  // Returns all segments, sorted by address.
  std::vector<Segment> segments() const;
  // Sets a function that is called when a segment is taken from the device or returned to it.
  void on_segment(std::function<void(bool is_taken, const Segment&)> listener) {
    listener_ = std::move(listener);
  }

  std::int64_t allocated() const { return allocated_; }
  std::int64_t reserved() const { return reserved_; }
  std::int64_t peak_allocated() const { return peak_allocated_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  // Returns how often free segments were returned to make room. The program continues, but each
  // time it waits for all of the device's work.
  std::int64_t retries() const { return retries_; }
  // Returns how many bytes of memory the device lacked at most, or 0 if everything fitted.
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
    Pools& pools = block.in_graph_pool ? graph_pools_ : default_pools_[block.stream];
    return block.small ? pools.small : pools.large;
  }
  Block* new_block(const Block& block);
  // Takes a segment for `wanted` from the device.
  Block* new_segment(const Block& wanted);
  // Puts a block that nothing uses into its pool.
  void add_to_pool(Block* block);
  // Makes the memory of earlier batches available again.
  void end_use_of_batches();
  void split(Block* block, std::int64_t bytes);
  void merge(Block* left, Block* right);
  void release_free_segments();

  mutable std::mutex mutex_;
  std::int64_t capacity_;
  std::function<void(bool is_taken, const Segment&)> listener_;
  std::deque<Block> blocks_;
  std::vector<Block*> unused_;                   // elements of blocks_ that are not in use
  std::map<std::int64_t, Pools> default_pools_;  // by stream
  Pools graph_pools_;
  bool records_graph_ = false, are_graphs_gone_ = false;
  // The freed memory of a batch with which the device still computes, and whether memory for a
  // later batch has been requested since.
  std::vector<Block*> batch_in_use_;
  bool has_later_batch_ = false;
  std::int64_t lowest_address_ = std::int64_t{1} << 46;
  std::int64_t allocated_ = 0, reserved_ = 0, peak_allocated_ = 0, peak_reserved_ = 0;
  std::int64_t retries_ = 0, missing_ = 0;
};

}  // namespace hasten::anatomy
