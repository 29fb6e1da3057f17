// The rules of LibTorch's allocator for GPUs, as its source states them.
#include "anatomy/caching_allocator.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace anatomy_caching_allocator_test {

using hasten::anatomy::CachingAllocator;
using Block = CachingAllocator::Block;

namespace {
constexpr std::int64_t kMiB = 1 << 20;
}

TEST_CASE("caching allocator: requests are rounded up, and cut from segments of three sizes") {
  CachingAllocator memory;
  CHECK(memory.allocate(1)->bytes == 512);
  CHECK(memory.reserved() == 2 * kMiB);
  CHECK(memory.allocate(513)->bytes == 1024);
  CHECK(memory.allocate(kMiB)->bytes == kMiB);  // the largest size that counts as small
  CHECK(memory.reserved() == 2 * kMiB);
  CHECK(memory.allocate(kMiB + 1)->bytes == kMiB + 512);
  CHECK(memory.reserved() == 22 * kMiB);
  CHECK(memory.allocate(10 * kMiB - 512)->bytes ==
        10 * kMiB - 512);  // in the same segment of 20 MiB
  CHECK(memory.reserved() == 22 * kMiB);
  CHECK(memory.allocate(11 * kMiB)->bytes == 12 * kMiB);  // a separate segment, not cut
  CHECK(memory.reserved() == 34 * kMiB);
  CHECK(memory.peak_allocated() == memory.allocated());
}

TEST_CASE("caching allocator: a large block is cut only if more than 1 MiB remains") {
  CachingAllocator memory;
  memory.free(memory.allocate(40 * kMiB));
  CHECK(memory.allocate(39 * kMiB)->bytes == 40 * kMiB);
  memory.free(memory.allocate(80 * kMiB));
  CHECK(memory.allocate(79 * kMiB - 512)->bytes == 79 * kMiB - 512);
  CHECK(memory.reserved() == 120 * kMiB);
}

TEST_CASE("caching allocator: the smallest free block that fits is used, and neighbours merge") {
  CachingAllocator memory;
  Block* const wide = memory.allocate(64 * kMiB);
  Block* const narrow = memory.allocate(32 * kMiB);
  memory.free(wide);
  memory.free(narrow);
  Block* const first = memory.allocate(16 * kMiB);
  CHECK(first == narrow);
  Block* const second = memory.allocate(16 * kMiB);
  CHECK(memory.reserved() == 96 * kMiB);
  memory.free(first);
  memory.free(second);
  CHECK(memory.allocate(32 * kMiB)->bytes == 32 * kMiB);  // one block again
  CHECK(memory.reserved() == 96 * kMiB);
  CHECK(memory.allocated() == 32 * kMiB);
}

TEST_CASE("caching allocator: of free blocks of one size, that of the newest segment is used") {
  CachingAllocator memory;
  Block* const first = memory.allocate(32 * kMiB);
  Block* const second = memory.allocate(32 * kMiB);
  CHECK(second->address < first->address);
  memory.free(second);
  memory.free(first);
  CHECK(memory.allocate(32 * kMiB) == second);
}

TEST_CASE("caching allocator: free segments are returned on request and if the device is full") {
  CachingAllocator memory(100 * kMiB);
  Block* const kept = memory.allocate(30 * kMiB);
  memory.free(memory.allocate(50 * kMiB));
  CHECK(memory.reserved() == 80 * kMiB);
  Block* const other = memory.allocate(60 * kMiB);  // fits only once the 50 MiB are returned
  CHECK(memory.reserved() == 90 * kMiB);
  CHECK(memory.retries() == 1);
  CHECK(memory.missing() == 0);
  memory.allocate(40 * kMiB);
  CHECK(memory.missing() == 30 * kMiB);
  memory.free(kept);
  memory.free(other);
  memory.empty_cache();
  CHECK(memory.reserved() == 40 * kMiB);
}

TEST_CASE("caching allocator: a graph has memory of its own, which it keeps") {
  CachingAllocator memory;
  Block* const usual = memory.allocate(40 * kMiB);
  memory.free(usual);
  memory.record_graph(true);
  Block* const kept = memory.allocate(20 * kMiB);
  memory.free(memory.allocate(24 * kMiB));
  CHECK(memory.reserved() == 84 * kMiB);  // the free 40 MiB are not used
  memory.free(memory.allocate(24 * kMiB));
  CHECK(memory.reserved() == 84 * kMiB);
  memory.record_graph(false);
  memory.free(kept);
  Block* const again = memory.allocate(20 * kMiB);
  CHECK(again == usual);
  CHECK_FALSE(again->in_graph_pool);
  memory.free(again);
  memory.empty_cache();
  CHECK(memory.reserved() == 44 * kMiB);
  memory.forget_graphs();
  CHECK(memory.reserved() == 44 * kMiB);
  memory.empty_cache();
  CHECK(memory.reserved() == 0);
  memory.record_graph(true);
  memory.free(memory.allocate(24 * kMiB));
  memory.record_graph(false);
  memory.empty_cache();
  CHECK(memory.reserved() == 24 * kMiB);
}

TEST_CASE("caching allocator: a stream for copies has its own memory, for two batches at a time") {
  CachingAllocator memory;
  Block* const computed = memory.allocate(40 * kMiB);
  memory.free(computed);
  // A batch of two tensors. The device still computes with the batch before it.
  std::vector<Block*> batch, previous;
  for (int i = 0; i < 5; ++i) {
    batch = {memory.allocate(12 * kMiB, /*stream=*/1), memory.allocate(16 * kMiB, 1)};
    CHECK(memory.allocated() == 28 * kMiB);
    CHECK(batch != previous);
    CHECK(batch[0]->stream == 1);
    for (Block* const each : batch) memory.free(each);
    previous = batch;
  }
  CHECK(memory.allocated() == 0);
  CHECK(memory.reserved() == (40 + 2 * 28) * kMiB);
  CHECK(memory.allocate(40 * kMiB) == computed);
  memory.free(computed);
  memory.empty_cache();
  CHECK(memory.reserved() == 0);
}

TEST_CASE("caching allocator: no memory is lost in any order of calls") {
  std::mt19937 random(7);
  CachingAllocator memory;
  std::vector<Block*> blocks;
  std::int64_t live = 0;
  for (int i = 0; i < 20000; ++i) {
    if (blocks.empty() || random() % 2) {
      blocks.push_back(memory.allocate(1 + random() % (1 << (5 + random() % 20)), random() % 3));
      live += blocks.back()->bytes;
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      live -= blocks.back()->bytes;
      memory.free(blocks.back());
      blocks.pop_back();
    }
    REQUIRE(memory.allocated() == live);
    REQUIRE(memory.reserved() >= live);
  }
  for (Block* const block : blocks) memory.free(block);
  CHECK(memory.allocated() == 0);
  memory.empty_cache();
  CHECK(memory.reserved() == 0);
}

}  // namespace anatomy_caching_allocator_test
