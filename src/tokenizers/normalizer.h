// File: tokenizers/normalizer.h
// BERT's text clean-up, with the answers of Hugging Face's BertNormalizer: drop control characters
// and make white space blanks, set ideographs apart, decompose and strip accents, lower-case.
//
//   const Normalizer normalizer({.clean_text = true, .lowercase = true});
//   Normalized out;
//   normalizer.run("Caf\u00e9 \u4e2d", false, out);   // out.text() == "cafe  \u4e2d "
//
// Thread rule: run() is const and safe from many threads, each with an `out` of its own. Throws
// std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "buffer.h"
#include "unicode.h"
#include "utf8.h"

namespace hasten::tokenizers {

struct NormalizerOptions {
  bool clean_text = true;
  bool ideographs = true;
  bool strip_accents = true;
  bool lowercase = true;
};

// Normalized text, and for each of its bytes the character of the source that it came from (counted
// from 0), where asked for.
struct Normalized {
  Buffer<char> bytes;
  Buffer<std::uint32_t> origins;

  std::string_view text() const noexcept { return {bytes.data(), bytes.size()}; }
};

class Normalizer {
 public:
  explicit Normalizer(const NormalizerOptions& options);

  const NormalizerOptions& options() const noexcept { return options_; }
  // `text` must be valid UTF-8.
  void run(std::string_view text, bool origins, Normalized& out) const;

 private:
  // What becomes of a character whatever stands beside it: one of these, or first_mapping + an
  // index in mappings_.
  enum Action : std::uint16_t { keep, drop, space, set_apart, hangul, exact, first_mapping };
  struct Mapping {
    std::uint8_t size = 0;
    char bytes[15] = {};
  };
  // Marks that stay are sorted by their combining class, so they are worked on together with their
  // neighbours.
  struct Character {
    char32_t value;
    std::uint32_t origin;
  };

  void plan();
  void plan_one(char32_t c);
  Action plan_mapping(const std::vector<Character>& result);
  char* write_planned(std::uint16_t action, const Decoded& character, const char* at,
                      char* to) const noexcept;
  template <bool with_origins>
  bool run_by_plan(std::string_view text, Normalized& out) const;
  void run_exactly(std::string_view text, bool origins, Normalized& out) const;
  void clean(std::vector<Character>& text) const;
  void set_ideographs_apart(std::vector<Character>& text) const;
  void strip_accents(std::vector<Character>& text) const;
  void to_lower(std::vector<Character>& text) const;
  void apply(std::vector<Character>& text) const;

  NormalizerOptions options_;
  const Unicode& unicode_;
  std::vector<std::uint16_t> plan_;
  std::vector<Mapping> mappings_;
  std::array<char, 128> ascii_byte_{};
  std::array<std::uint8_t, 128> ascii_kept_{};
};

}  // namespace hasten::tokenizers
