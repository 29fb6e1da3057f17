#include "anatomy/caching_allocator.h"

#include <algorithm>

namespace hasten::anatomy {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kLeastBlock = 512;
constexpr std::int64_t kMostSmall = kMiB;  // the largest request cut from a small segment
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLeastLarge = 10 * kMiB;  // the smallest request with its own segment
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kRoundLarge = 2 * kMiB;

std::int64_t rounded(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

std::int64_t segment_for(std::int64_t bytes) {
  if (bytes <= kMostSmall) return kSmallSegment;
  return bytes < kLeastLarge ? kLargeSegment : rounded(bytes, kRoundLarge);
}

// True if the rest of the block becomes a block of its own.
bool worth_cutting(const CachingAllocator::Block& block, std::int64_t bytes) {
  const std::int64_t left = block.bytes - bytes;
  return block.small ? left >= kLeastBlock : left > kMostSmall;
}

}  // namespace

CachingAllocator::Block* CachingAllocator::allocate(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::int64_t size = rounded(std::max(bytes, kLeastBlock), kLeastBlock);
  const bool small = size <= kMostSmall;
  Pool& pool = small ? small_ : large_;
  Block wanted;
  wanted.bytes = size;
  wanted.address = -1;
  const auto fitting = pool.lower_bound(&wanted);
  Block* block = nullptr;
  if (fitting != pool.end()) {
    block = *fitting;
    pool.erase(fitting);
  } else {
    block = new_segment(segment_for(size), small);
  }
  block->free = false;
  if (worth_cutting(*block, size)) cut(block, size);
  allocated_ += block->bytes;
  most_allocated_ = std::max(most_allocated_, allocated_);
  return block;
}

CachingAllocator::Block* CachingAllocator::make(const Block& block) {
  if (spare_.empty()) return &blocks_.emplace_back(block);
  Block* const out = spare_.back();
  spare_.pop_back();
  *out = block;
  return out;
}

CachingAllocator::Block* CachingAllocator::new_segment(std::int64_t bytes, bool small) {
  if (capacity_ > 0 && reserved_ + bytes > capacity_) {
    ++retries_;
    release_free_segments();
    missing_ = std::max(missing_, reserved_ + bytes - capacity_);
  }
  reserved_ += bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  next_address_ += bytes;
  return make({.bytes = bytes, .address = next_address_ - bytes, .small = small});
}

// Keeps the first `bytes` bytes of the block and makes a free block of the rest.
void CachingAllocator::cut(Block* block, std::int64_t bytes) {
  Block* const rest = make({.bytes = block->bytes - bytes,
                            .address = block->address + bytes,
                            .small = block->small,
                            .free = true,
                            .before = block,
                            .after = block->after});
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  pool_of(*rest).insert(rest);
}

// Merges `right` into `left`. Neither of them may be in a pool.
void CachingAllocator::join(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after) left->after->before = left;
  spare_.push_back(right);
}

void CachingAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  release_free_segments();
}

void CachingAllocator::release_free_segments() {
  for (Pool* pool : {&small_, &large_}) {
    for (auto entry = pool->begin(); entry != pool->end();) {
      Block* const block = *entry;
      if (block->before || block->after) {
        ++entry;
        continue;
      }
      reserved_ -= block->bytes;
      entry = pool->erase(entry);
      spare_.push_back(block);
    }
  }
}

void CachingAllocator::free(Block* block) {
  const std::lock_guard lock(mutex_);
  allocated_ -= block->bytes;
  block->free = true;
  if (Block* const left = block->before; left && left->free) {
    pool_of(*left).erase(left);
    join(left, block);
    block = left;
  }
  if (Block* const right = block->after; right && right->free) {
    pool_of(*right).erase(right);
    join(block, right);
  }
  pool_of(*block).insert(block);
}

}  // namespace hasten::anatomy
