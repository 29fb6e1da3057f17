// File: tokenizers/normalizer.h
// Cleans up text as Hugging Face's BertNormalizer does: drops control characters, turns white space
// into spaces, puts spaces around ideographs, decomposes characters and strips accents, and
// lower-cases.
//
//   const Normalizer& normalizer = Normalizer::get({.clean_text = true, .lowercase = true});
//   Normalized out;
//   normalizer.run("Caf\u00e9 \u4e2d", false, out);   // out.text() == "cafe  \u4e2d "
//
// Thread rule: run() is const and safe from many threads, each with its own `out`. Throws
// std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "tokenizers/buffer.h"
#include "tokenizers/code_point_table.h"
#include "tokenizers/unicode.h"

namespace hasten::tokenizers {

struct NormalizerOptions {
  bool clean_text = true;
  bool ideographs = true;
  bool strip_accents = true;
  bool lowercase = true;
};

// Normalized text and, if requested, the source character that each of its bytes came from, counted
// in code points from 0.
struct Normalized {
  Buffer<char> bytes;
  Buffer<std::uint32_t> origins;

  std::string_view text() const noexcept { return {bytes.data(), bytes.size()}; }
};

class Normalizer {
 public:
  // Returns the only object with these options. The first call builds it (some milliseconds, 0.1
  // MB), and it lives until the process ends.
  static const Normalizer& get(const NormalizerOptions& options);
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  const NormalizerOptions& options() const noexcept { return options_; }
  // Replaces `out`; fills out.origins only if `origins` is true. `text` must be valid UTF-8.
  void run(std::string_view text, bool origins, Normalized& out) const;

 private:
  explicit Normalizer(const NormalizerOptions& options);

  // The result for a character: one of these, or first_mapping plus an index into mappings_.
  // `needs_context` means that it depends on the neighbours.
  enum Action : std::uint16_t {
    keep,
    drop,
    space,
    add_spaces,
    hangul,
    needs_context,
    first_mapping
  };
  struct Mapping {
    std::uint8_t size = 0;
    char bytes[15] = {};
  };
  // A character and the index of its source character. Marks that remain are sorted by combining
  // class, so they are processed together with their neighbours.
  struct Character {
    char32_t value;
    std::uint32_t origin;
  };

  // The Action, or first_mapping plus an index, of each code point.
  using Actions = std::vector<std::uint16_t>;

  CodePointTable<std::uint16_t> compute_actions();
  std::uint16_t compute_action(char32_t c);
  Action add_mapping(const std::vector<Character>& result);
  char* write_action(std::uint16_t action, const DecodedCharacter& character, const char* at,
                     char* to) const noexcept;
  template <bool with_origins>
  bool run_by_table(std::string_view text, Normalized& out) const;
  void run_on_characters(std::string_view text, bool origins, Normalized& out) const;
  void clean(std::vector<Character>& text) const;
  void add_spaces_around_ideographs(std::vector<Character>& text) const;
  void strip_accents(std::vector<Character>& text) const;
  void to_lower(std::vector<Character>& text) const;
  void apply(std::vector<Character>& text) const;

  NormalizerOptions options_;
  const Unicode& unicode_;
  std::vector<Mapping> mappings_;
  CodePointTable<std::uint16_t> actions_;
  std::array<char, 128> ascii_byte_{};
  std::array<std::uint8_t, 128> ascii_kept_{};
};

}  // namespace hasten::tokenizers
