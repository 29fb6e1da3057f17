#include "tokenizers/unicode.h"

#include <algorithm>

#include "tokenizers/unicode_tables.h"

namespace hasten::tokenizers {
namespace {

// Returns the range that holds c, or null. `ranges` must be sorted and disjoint.
template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t c) {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  if (after == ranges.begin()) return nullptr;
  const Range& range = *(after - 1);
  return c <= range.last ? &range : nullptr;
}

}  // namespace

const Unicode& Unicode::get() {
  static const Unicode unicode;
  return unicode;
}

Unicode::Unicode() : flags_(kLimit) {
  auto mark_all = [this](std::span<const CodePointRange> ranges, Flag flag) {
    for (const auto& range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c) flags_[c] |= flag;
  };
  mark_all(dropped_ranges, dropped);
  mark_all(ideograph_ranges, ideograph);
  mark_all(mark_ranges, mark);
  mark_all(punctuation_ranges, punctuation);
  mark_all(white_ranges, white);
  mark_all(word_ranges, word);
  for (const auto& range : combining_ranges)
    for (char32_t c = range.first; c <= range.last; ++c) flags_[c] |= combining;
  for (char32_t c = kHangulFirst; c <= kHangulLast; ++c) flags_[c] |= decomposes;
  for (const auto& pair : decomposition_pairs) flags_[pair.whole] |= decomposes;
  for (std::size_t at = 0; at < decomposition_singles.size();) {
    const char32_t first = decomposition_singles[at], count = decomposition_singles[at + 1];
    for (char32_t i = 0; i < count; ++i) {
      flags_[first + i] |= decomposes;
      single_keys_ += first + i;
      single_targets_ += decomposition_singles[at + 2 + i];
    }
    at += 2 + count;
  }
}

std::uint8_t Unicode::combining_class(char32_t c) const noexcept {
  if (!is(c, combining)) return 0;
  const CombiningRange* range = find_range(combining_ranges, c);
  return range ? range->combining_class : 0;
}

void Unicode::decompose(char32_t c, std::u32string& out) const {
  if (!is(c, decomposes)) {
    out += c;
  } else if (c >= kHangulFirst && c <= kHangulLast) {
    const HangulLetters letters = hangul_letters(c);
    out.append(letters.values, static_cast<std::size_t>(letters.count));
  } else {
    auto pair = std::lower_bound(
        decomposition_pairs.begin(), decomposition_pairs.end(), c,
        [](const DecompositionPair& row, char32_t value) { return row.whole < value; });
    if (pair == decomposition_pairs.end() || pair->whole != c) return decompose_single(c, out);
    decompose(pair->first, out);
    decompose(pair->second, out);
  }
}

void Unicode::decompose_single(char32_t c, std::u32string& out) const {
  const auto at =
      std::lower_bound(single_keys_.begin(), single_keys_.end(), c) - single_keys_.begin();
  decompose(single_targets_[static_cast<std::size_t>(at)], out);
}

void Unicode::lower(char32_t c, std::u32string& out) const {
  if (c == 0x130) {  // the one letter with a longer lower-case form: i and a dot above
    out += U"i\u0307";
    return;
  }
  const CaseRange* range = find_range(case_ranges, c);
  const bool moves = range && (c - range->first) % range->step == 0;
  out += moves ? static_cast<char32_t>(static_cast<std::int32_t>(c) + range->distance) : c;
}

HangulLetters hangul_letters(char32_t c) noexcept {
  const char32_t index = c - kHangulFirst;
  return {.values = {0x1100 + index / 588, 0x1161 + index % 588 / 28, 0x11A7 + index % 28},
          .count = index % 28 == 0 ? 2 : 3};
}

}  // namespace hasten::tokenizers
