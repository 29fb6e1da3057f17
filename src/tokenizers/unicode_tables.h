// File: tokenizers/unicode_tables.h
// The generated tables of Unicode properties; generate_unicode_tables.py describes their sources.
// The rest of the tokenizer reads them through unicode.h.
#pragma once

#include <cstdint>
#include <span>

namespace hasten::tokenizers {

struct CodePointRange {
  char32_t first;
  char32_t last;
};
struct CombiningRange {
  char32_t first;
  char32_t last;
  std::uint8_t combining_class;
};
// The lower-case letters of first, first + step, ..., last are `distance` code points further on;
// `distance` may be negative.
struct CaseRange {
  char32_t first;
  char32_t last;
  std::uint8_t step;
  std::int32_t distance;
};
struct DecompositionPair {
  char32_t whole;
  char32_t first;
  char32_t second;
};

extern const std::span<const CodePointRange> dropped_ranges;  // removed by clean_text
// Surrounded by spaces by handle_chinese_chars.
extern const std::span<const CodePointRange> ideograph_ranges;
extern const std::span<const CodePointRange> mark_ranges;         // removed by strip_accents
extern const std::span<const CodePointRange> punctuation_ranges;  // each is a word of its own
extern const std::span<const CodePointRange> white_ranges;        // separate words
// Word characters, which must not touch a token marked single_word.
extern const std::span<const CodePointRange> word_ranges;
extern const std::span<const CombiningRange> combining_ranges;  // combining classes of marks
extern const std::span<const CaseRange> case_ranges;  // all lower-case forms but that of U+0130
extern const std::span<const DecompositionPair> decomposition_pairs;
// Runs of decompositions into one code point: first code point, count, targets.
extern const std::span<const char32_t> decomposition_singles;

}  // namespace hasten::tokenizers
