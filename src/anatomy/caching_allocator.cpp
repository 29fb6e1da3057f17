#include "anatomy/caching_allocator.h"

#include <algorithm>
#include <utility>

namespace hasten::anatomy {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kMinBlock = 512;
constexpr std::int64_t kMaxSmall = kMiB;  // the largest request cut from a small segment
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kMinLarge = 10 * kMiB;  // the smallest request with its own segment
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kRoundLarge = 2 * kMiB;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

// True if the rest of the block becomes a separate block.
bool should_split(const CachingAllocator::Block& block, std::int64_t bytes) {
  const std::int64_t left = block.bytes - bytes;
  return block.small ? left >= kMinBlock : left > kMaxSmall;
}

}  // namespace

std::int64_t segment_bytes(std::int64_t requested) {
  if (requested <= kMaxSmall) return kSmallSegment;
  return requested < kMinLarge ? kLargeSegment : round_up(requested, kRoundLarge);
}

CachingAllocator::Block* CachingAllocator::allocate(std::int64_t bytes, std::int64_t stream) {
  const std::lock_guard lock(mutex_);
  const std::int64_t size = round_up(std::max(bytes, kMinBlock), kMinBlock);
  Block wanted{.bytes = size,
               .address = -1,
               .small = size <= kMaxSmall,
               .in_graph_pool = records_graph_,
               .stream = stream};
  if (stream != 0) has_later_batch_ = true;
  Pool& pool = pool_of(wanted);
  const auto fitting = pool.lower_bound(&wanted);
  Block* block = nullptr;
  if (fitting != pool.end()) {
    block = *fitting;
    pool.erase(fitting);
  } else {
    block = new_segment(wanted);
  }
  block->free = false;
  if (should_split(*block, size)) split(block, size);
  allocated_ += block->bytes;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return block;
}

CachingAllocator::Block* CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) return &blocks_.emplace_back(block);
  Block* const out = unused_.back();
  unused_.pop_back();
  *out = block;
  return out;
}

CachingAllocator::Block* CachingAllocator::new_segment(const Block& wanted) {
  const std::int64_t bytes = segment_bytes(wanted.bytes);
  if (capacity_ > 0 && reserved_ + bytes > capacity_) {
    ++retries_;
    release_free_segments();
    missing_ = std::max(missing_, reserved_ + bytes - capacity_);
  }
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  lowest_address_ -= bytes;
  const std::int64_t address = lowest_address_;
  if (listener_) {
    listener_(true,
              {.address = address, .bytes = bytes, .small = wanted.small, .stream = wanted.stream});
  }
  Block segment = wanted;
  segment.bytes = bytes;
  segment.address = address;
  return new_block(segment);
}

// Keeps the first `bytes` bytes of the block and makes a free block of the rest.
void CachingAllocator::split(Block* block, std::int64_t bytes) {
  Block* const rest = new_block({.bytes = block->bytes - bytes,
                                 .address = block->address + bytes,
                                 .small = block->small,
                                 .free = true,
                                 .in_graph_pool = block->in_graph_pool,
                                 .stream = block->stream,
                                 .before = block,
                                 .after = block->after});
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  pool_of(*rest).insert(rest);
}

// Merges `right` into `left`. Neither of them may be in a pool.
void CachingAllocator::merge(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after) left->after->before = left;
  unused_.push_back(right);
}

void CachingAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  release_free_segments();
}

void CachingAllocator::record_graph(bool is_recorded) {
  const std::lock_guard lock(mutex_);
  records_graph_ = is_recorded;
  are_graphs_gone_ = false;
}

void CachingAllocator::forget_graphs() {
  const std::lock_guard lock(mutex_);
  are_graphs_gone_ = true;
}

void CachingAllocator::release_free_segments() {
  end_use_of_batches();  // LibTorch waits for the device first
  std::vector<Pool*> pools;
  for (auto& [stream, each] : default_pools_) pools.insert(pools.end(), {&each.small, &each.large});
  if (are_graphs_gone_) pools.insert(pools.end(), {&graph_pools_.small, &graph_pools_.large});
  for (Pool* pool : pools) {
    for (auto entry = pool->begin(); entry != pool->end();) {
      Block* const block = *entry;
      if (block->before || block->after) {
        ++entry;
        continue;
      }
      reserved_ -= block->bytes;
      if (listener_) {
        listener_(false, {.address = block->address,
                          .bytes = block->bytes,
                          .small = block->small,
                          .stream = block->stream});
      }
      entry = pool->erase(entry);
      unused_.push_back(block);
    }
  }
}

void CachingAllocator::end_use_of_batches() {
  for (Block* const block : batch_in_use_) add_to_pool(block);
  batch_in_use_.clear();
}

std::vector<CachingAllocator::Segment> CachingAllocator::segments() const {
  const std::lock_guard lock(mutex_);
  const std::set<const Block*> unused(unused_.begin(), unused_.end());
  std::vector<Segment> out;
  for (const Block& first : blocks_) {
    if (first.before != nullptr || unused.count(&first)) continue;
    Segment& segment = out.emplace_back();
    segment.address = first.address;
    segment.small = first.small;
    segment.stream = first.stream;
    for (const Block* block = &first; block != nullptr; block = block->after) {
      segment.bytes += block->bytes;
      segment.blocks.push_back(block);
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Segment& a, const Segment& b) { return a.address < b.address; });
  return out;
}

void CachingAllocator::free(Block* block) {
  const std::lock_guard lock(mutex_);
  allocated_ -= block->bytes;
  if (block->stream == 0 || block->in_graph_pool) return add_to_pool(block);
  if (std::exchange(has_later_batch_, false)) end_use_of_batches();
  batch_in_use_.push_back(block);
}

void CachingAllocator::add_to_pool(Block* block) {
  block->free = true;
  if (Block* const left = block->before; left && left->free) {
    pool_of(*left).erase(left);
    merge(left, block);
    block = left;
  }
  if (Block* const right = block->after; right && right->free) {
    pool_of(*right).erase(right);
    merge(block, right);
  }
  pool_of(*block).insert(block);
}

}  // namespace hasten::anatomy
