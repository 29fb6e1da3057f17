// File: tokenizers/unicode.h
// What the tokenizer has to know of each code point, with the answers of Hugging Face's tokenizers
// 0.23.3, which mix several versions of Unicode (generate_unicode_tables.py).
//
//   const Unicode& unicode = Unicode::get();
//   if (unicode.is(c, Unicode::white | Unicode::punctuation)) ...
//
// Thread rule: immutable once built; the first get() builds it (about a millisecond, 1.1 MB).
// Throws nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hasten::tokenizers {

class Unicode {
 public:
  enum Flag : std::uint8_t {
    dropped = 1,      // clean_text removes it
    ideograph = 2,    // handle_chinese_chars puts spaces around it
    mark = 4,         // strip_accents removes it
    punctuation = 8,  // a word of its own
    white = 16,       // between words
    word = 32,        // what single_word must not touch
    combining = 64,   // has a combining class
    decomposes = 128,
  };
  static constexpr char32_t limit = 0x110000;

  static const Unicode& get();

  // Any of the flags? `c` must be below `limit`.
  bool is(char32_t c, int flags) const noexcept { return (flags_[c] & flags) != 0; }
  std::uint8_t combining_class(char32_t c) const noexcept;
  // Appends the full canonical decomposition (NFD of the one character).
  void decompose(char32_t c, std::u32string& out) const;
  // Appends the lower-case form: one character, but two for U+0130.
  void lower(char32_t c, std::u32string& out) const;

 private:
  Unicode();
  void decompose_single(char32_t c, std::u32string& out) const;

  std::vector<std::uint8_t> flags_;
  std::u32string single_keys_;  // sorted, and what each decomposes to
  std::u32string single_targets_;
};

}  // namespace hasten::tokenizers
