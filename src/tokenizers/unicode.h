// File: tokenizers/unicode.h
// The properties of code points that the tokenizer needs, equal to those in Hugging Face tokenizers
// 0.23.3, which mixes several versions of Unicode (see generate_unicode_tables.py).
//
//   const Unicode& unicode = Unicode::get();
//   const bool ends_word = unicode.is(c, Unicode::white | Unicode::punctuation);
//
// Thread rule: immutable once built; any thread. The first get() builds it (about a millisecond,
// 1.1 MB). Throws only std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hasten::tokenizers {

// The Korean syllables. They are not in the tables, because the Unicode standard decomposes them by
// a formula.
inline constexpr char32_t kHangulFirst = 0xAC00;
inline constexpr char32_t kHangulLast = 0xD7A3;

struct HangulLetters {
  char32_t values[3];
  int count;  // 2 or 3
};
// `c` must be a syllable.
HangulLetters hangul_letters(char32_t c) noexcept;

class Unicode {
 public:
  enum Flag : std::uint8_t {
    dropped = 1,       // removed by clean_text
    ideograph = 2,     // surrounded by spaces by handle_chinese_chars
    mark = 4,          // removed by strip_accents
    punctuation = 8,   // a word of its own
    white = 16,        // separates words
    word = 32,         // must not touch a token marked single_word
    combining = 64,    // has a combining class
    decomposes = 128,  // has a canonical decomposition
  };
  static constexpr char32_t kLimit = 0x110000;

  static const Unicode& get();

  // True if c has any of the flags. `c` must be below `kLimit`.
  bool is(char32_t c, int flags) const noexcept { return (flags_[c] & flags) != 0; }
  // The canonical combining class; 0 for characters that are not combining marks.
  std::uint8_t combining_class(char32_t c) const noexcept;
  // Appends the full canonical decomposition (NFD) of one character.
  void decompose(char32_t c, std::u32string& out) const;
  // Appends the lower-case form: one character, or two for U+0130.
  void lower(char32_t c, std::u32string& out) const;

 private:
  Unicode();
  void decompose_single(char32_t c, std::u32string& out) const;

  std::vector<std::uint8_t> flags_;
  std::u32string single_keys_;     // sorted
  std::u32string single_targets_;  // the decomposition of each of single_keys_
};

}  // namespace hasten::tokenizers
