// File: tokenizers/code_point_table.h
// A value for each code point, in pages of which equal ones are stored once. A table takes some ten
// kilobytes instead of megabytes.
//
//   const CodePointTable<std::uint8_t> table([&](char32_t first, std::span<std::uint8_t> page) {
//     for (char32_t i = 0; i < page.size(); ++i) page[i] = value_of(first + i);
//   });
//   const std::uint8_t value = table[U'!'];
//
// Thread rule: immutable. The constructor throws only std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace hasten::tokenizers {

template <class Value>
class CodePointTable {
 public:
  // Calls fill(first, page) for each page, in order. It sets the values of the code points from
  // `first` on; they are 0 before.
  template <class Fill>
  explicit CodePointTable(Fill fill) : pages_(kLimit >> kShift) {
    using Page = std::array<Value, kSize>;
    std::map<Page, std::uint16_t> numbers;
    Page page, previous;
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      page.fill(Value{});
      fill(static_cast<char32_t>(i << kShift), std::span<Value>(page));
      if (i > 0 && page == previous) {
        pages_[i] = pages_[i - 1];
        continue;
      }
      const auto [found, is_new] =
          numbers.emplace(page, static_cast<std::uint16_t>(numbers.size()));
      if (is_new) values_.insert(values_.end(), page.begin(), page.end());
      pages_[i] = found->second;
      previous = page;
    }
    values_.shrink_to_fit();
  }

  // `c` must be a code point.
  Value operator[](char32_t c) const noexcept {
    return values_[std::size_t{pages_[c >> kShift]} << kShift | (c & (kSize - 1))];
  }

 private:
  static constexpr char32_t kLimit = 0x110000;
  static constexpr int kShift = 7;
  static constexpr char32_t kSize = 1 << kShift;
  std::vector<std::uint16_t> pages_;
  std::vector<Value> values_;
};

}  // namespace hasten::tokenizers
