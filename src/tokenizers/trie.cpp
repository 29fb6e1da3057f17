#include "tokenizers/trie.h"

#include <algorithm>
#include <numeric>

namespace hasten::tokenizers {
namespace {

constexpr std::int32_t kNoParent = -2;

}  // namespace

Trie::Trie(const std::vector<std::string>& keys) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&keys](std::int32_t a, std::int32_t b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  grow_to_hold(1);
  units_[kRoot].parent = kNoParent;  // marks its place as taken; the root has no parent
  // A work list instead of recursion: a key may be as long as a file.
  std::vector<Span> to_do{{0, keys.size(), 0, kRoot}};
  while (!to_do.empty()) {
    const Span span = to_do.back();
    to_do.pop_back();
    build_node(keys, order, span, to_do);
  }
}

// Sets the value and the children of one node, and adds the children to `to_do`.
void Trie::build_node(const std::vector<std::string>& keys, const std::vector<std::int32_t>& order,
                      Span span, std::vector<Span>& to_do) {
  const auto key = [&](std::size_t i) -> const std::string& {
    return keys[static_cast<std::size_t>(order[i])];
  };
  while (span.low < span.high && key(span.low).size() == span.depth) {
    values_[static_cast<std::size_t>(span.node)] = order[span.low];
    ++span.low;
  }
  std::string bytes;
  std::vector<std::size_t> starts;
  for (std::size_t i = span.low; i < span.high; ++i) {
    if (!bytes.empty() && bytes.back() == key(i)[span.depth]) continue;
    bytes += key(i)[span.depth];
    starts.push_back(i);
  }
  starts.push_back(span.high);
  if (bytes.empty()) return;  // its base stays 0, and no place has it as its parent
  const std::int32_t base = free_base(bytes);
  units_[static_cast<std::size_t>(span.node)].base = base;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int32_t child = base + static_cast<unsigned char>(bytes[i]);
    units_[static_cast<std::size_t>(child)].parent = span.node;
    to_do.push_back({starts[i], starts[i + 1], span.depth + 1, child});
  }
}

// Returns a base at which the places of all these bytes are free. The search starts at first_free_;
// few of the places before it are free.
std::int32_t Trie::free_base(const std::string& bytes) {
  const auto is_taken = [this](std::int32_t at) {
    return units_[static_cast<std::size_t>(at)].parent != kNone;
  };
  const std::int32_t lowest = static_cast<unsigned char>(bytes[0]);
  const std::int32_t start = std::max(first_free_, lowest + 1);
  std::int32_t at = start, taken = 0;
  const auto fits = [&] {
    grow_to_hold(at - lowest);
    if (is_taken(at)) return ++taken, false;
    return std::none_of(bytes.begin() + 1, bytes.end(), [&](char byte) {
      return is_taken(at - lowest + static_cast<unsigned char>(byte));
    });
  };
  while (!fits()) ++at;
  // If more than 95% of the places were taken, later searches skip them.
  if (taken > (at - start) / 20 * 19) first_free_ = at;
  return at - lowest;
}

// Makes room for the place of every byte after `base`.
void Trie::grow_to_hold(std::int32_t base) {
  const std::size_t needed = static_cast<std::size_t>(base) + 256;
  if (needed <= units_.size()) return;
  const std::size_t size = std::max(needed, units_.size() + units_.size() / 4);
  units_.resize(size);
  values_.resize(size, kNone);
}

std::int32_t Trie::walk(std::string_view text) const noexcept {
  std::int32_t node = kRoot;
  for (const char c : text) {
    node = step(node, c);
    if (node == kNone) return kNone;
  }
  return node;
}

std::int32_t Trie::find(std::string_view key) const noexcept {
  const std::int32_t node = walk(key);
  return node == kNone ? kNone : value(node);
}

}  // namespace hasten::tokenizers
