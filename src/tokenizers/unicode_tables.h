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
// The letters first, first + step, ..., last. The code point of each lower-case form is higher by
// `distance`, which may be negative.
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

// The general categories of Unicode.
enum class Category : std::uint8_t {
  lu,
  ll,
  lt,
  lm,
  lo,
  mn,
  mc,
  me,
  nd,
  nl,
  no,
  pc,
  pd,
  ps,
  pe,
  pi,
  pf,
  po,
  sm,
  sc,
  sk,
  so,
  zs,
  zl,
  zp,
  cc,
  cf,
  cn,
  co
};
// The code points first, first + step, ..., last.
struct CategoryRange {
  char32_t first;
  char32_t last;
  std::uint8_t step;
  Category category;
};
struct ScriptRange {
  char32_t first;
  char32_t last;
  std::uint8_t script;  // an index into the names in code_sets.cpp
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
extern const std::span<const CaseRange> case_ranges;  // all lower-case forms except U+0130's
extern const std::span<const DecompositionPair> decomposition_pairs;
// Runs of decompositions into one code point: first code point, count, targets.
extern const std::span<const char32_t> decomposition_singles;

// Every code point except those of the category cn.
extern const std::span<const CategoryRange> category_ranges;
// The word characters of patterns that are not letters, marks, decimal digits or connectors.
extern const std::span<const CodePointRange> regex_word_ranges;
extern const std::span<const ScriptRange> script_ranges;

// Full compatibility decompositions that differ from the canonical ones: runs of decompositions
// into one code point (first code point, count, targets), and others (code point, count, targets).
extern const std::span<const char32_t> compatibility_singles;
extern const std::span<const char32_t> compatibility_longer;
// Characters whose canonical decomposition is not composed again. Sorted.
extern const std::span<const char32_t> composition_exclusions;

extern const std::span<const CodePointRange> numeric_ranges;  // set apart by Digits
extern const std::span<const CodePointRange> accent_ranges;   // removed by StripAccents
// The characters that form graphemes. In this order: characters that join the one before them,
// characters that join no other one, characters that join the one after them, and pictographs,
// which a zero-width joiner joins.
extern const std::span<const CodePointRange> grapheme_extend_ranges;
extern const std::span<const CodePointRange> grapheme_control_ranges;
extern const std::span<const CodePointRange> grapheme_prepend_ranges;
extern const std::span<const CodePointRange> pictograph_ranges;

}  // namespace hasten::tokenizers
