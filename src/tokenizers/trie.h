// File: tokenizers/trie.h
// A set of numbered byte strings that is walked one byte at a time: the vocabulary, and the added
// tokens to find in a text. A double array (Aoe 1989): the child of node n by byte b is place
// base[n] + b if the parent of that place is n, so a step takes two loads and no search.
//
//   Trie trie({"play", "##ing"});            // numbered 0, 1
//   std::int32_t node = Trie::kRoot, longest = Trie::kNone;
//   for (char c : word) {
//     node = trie.step(node, c);
//     if (node == Trie::kNone) break;
//     if (trie.value(node) != Trie::kNone) longest = trie.value(node);
//   }
//
// Thread rule: immutable once built; safe to walk from many threads. The constructor throws
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::tokenizers {

class Trie {
 public:
  static constexpr std::int32_t kRoot = 0;
  static constexpr std::int32_t kNone = -1;

  Trie() : Trie(std::vector<std::string>{}) {}
  // keys[i] gets the value i; equal keys get the value of one of them.
  explicit Trie(const std::vector<std::string>& keys);

  // The child of `node` by `byte`, or kNone.
  std::int32_t step(std::int32_t node, char byte) const noexcept {
    const std::int32_t next =
        units_[static_cast<std::size_t>(node)].base + static_cast<unsigned char>(byte);
    return units_[static_cast<std::size_t>(next)].parent == node ? next : kNone;
  }
  // The number of the key that ends at this node, or kNone.
  std::int32_t value(std::int32_t node) const noexcept {
    return values_[static_cast<std::size_t>(node)];
  }

  // The node that all bytes of `text` lead to, or kNone.
  std::int32_t walk(std::string_view text) const noexcept;
  // The value of exactly this key, or kNone.
  std::int32_t find(std::string_view key) const noexcept;

 private:
  struct Unit {
    std::int32_t base = 0;
    std::int32_t parent = kNone;
  };
  // The keys at order[low, high) share their first `depth` bytes, which lead to `node`.
  struct Span {
    std::size_t low, high, depth;
    std::int32_t node;
  };

  void build_node(const std::vector<std::string>& keys, const std::vector<std::int32_t>& order,
                  Span span, std::vector<Span>& to_do);
  std::int32_t free_base(const std::string& bytes);
  void grow_to_hold(std::int32_t base);

  std::vector<Unit> units_;
  std::vector<std::int32_t> values_;
  std::int32_t first_free_ = 1;
};

}  // namespace hasten::tokenizers
