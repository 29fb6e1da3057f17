// File: tokenizers/pipeline/word_cache.h
// Keeps the parts of words that a model has split before.
//
//   WordCache cache;
//   const std::uint64_t hash = hash_bytes(word);
//   std::span<const WordPart> parts;
//   if (!cache.find(word, hash, parts)) cache.insert(word, hash, split(word));
//
// It holds up to 65,536 words of at most 64 bytes, and 262,144 parts, which is 4 per word. When it
// is full, it removes all of them, so it takes 18 MB at most. Thread rule: one thread at a time.
// Throws std::bad_alloc.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/pipeline/model.h"

namespace hasten::tokenizers {

class WordCache {
 public:
  static constexpr std::size_t kMaxWordBytes = 64;

  // Returns whether the word is known, and sets `parts` to its parts. They are valid until the
  // next insert().
  bool find(std::string_view word, std::uint64_t hash,
            std::span<const WordPart>& parts) const noexcept {
    if (slots_.empty()) return false;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = hash & mask; slots_[at].size != 0; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.hash != hash || slot.size != word.size() ||
          std::memcmp(bytes_.data() + slot.begin, word.data(), word.size()) != 0)
        continue;
      parts = {parts_.data() + slot.parts_begin, slot.parts_count};
      return true;
    }
    return false;
  }

  // `word` must have 1 to kMaxWordBytes bytes and must not be known yet. If it throws, the word is
  // not known.
  void insert(std::string_view word, std::uint64_t hash, std::span<const WordPart> parts) {
    if (count_ == kMaxWords || parts_.size() > kMaxParts) clear();
    if (2 * (count_ + 1) > slots_.size()) grow();
    const Slot slot{
        hash, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(word.size()),
        static_cast<std::uint32_t>(parts_.size()), static_cast<std::uint32_t>(parts.size())};
    bytes_ += word;
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    place(slot);  // last, so that no slot refers to a word if memory runs out
    ++count_;
  }

 private:
  static constexpr std::size_t kMaxWords = 1 << 16, kMaxParts = 1 << 18, kInitialSlots = 1 << 10;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t begin = 0, size = 0;  // the word's place in bytes_; a size of 0 means empty
    std::uint32_t parts_begin = 0, parts_count = 0;
  };

  void place(const Slot& slot) noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = slot.hash & mask;
    while (slots_[at].size != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? kInitialSlots : 2 * slots_.size());
    std::swap(old, slots_);
    for (const Slot& slot : old)
      if (slot.size != 0) place(slot);
  }
  void clear() noexcept {
    slots_.assign(slots_.size(), {});
    bytes_.clear();
    parts_.clear();
    count_ = 0;
  }

  std::vector<Slot> slots_;
  std::string bytes_;
  std::vector<WordPart> parts_;
  std::size_t count_ = 0;
};

}  // namespace hasten::tokenizers
