// File: tokenizers/unicode_tables.h
// The generated tables of Unicode facts (generate_unicode_tables.py says where they come from);
// unicode.h is how the rest of the tokenizer asks them.
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
// first, first + step, ... last each have their lower-case letter at `distance`.
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
extern const std::span<const CodePointRange>
    ideograph_ranges;  // words of their own: handle_chinese_chars
extern const std::span<const CodePointRange> mark_ranges;         // removed by strip_accents
extern const std::span<const CodePointRange> punctuation_ranges;  // words of their own
extern const std::span<const CodePointRange> white_ranges;        // between words
extern const std::span<const CodePointRange> word_ranges;  // joined to a token marked single_word
extern const std::span<const CombiningRange> combining_ranges;  // order of marks after one letter
extern const std::span<const CaseRange> case_ranges;  // all lower-case forms but that of U+0130
extern const std::span<const DecompositionPair> decomposition_pairs;
extern const std::span<const char32_t>
    decomposition_singles;  // runs: first code point, count, targets

}  // namespace hasten::tokenizers
