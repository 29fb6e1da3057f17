// File: tokenizers/pipeline/charsmap.h
// The map of SentencePiece's normalizer, "precompiled_charsmap": a double array whose keys are
// characters or short sequences of characters, and the texts that replace the keys.
//
//   const Charsmap map(decode_base64(text), "file: normalizer.precompiled_charsmap");
//   const std::optional<std::string_view> replacement = map.find("\uFB01");    // "fi"
//
// Thread rule: immutable once built; any thread. The constructor throws DataError
// "tokenizers.bad-charsmap".
// Source: Google's SentencePiece and Hugging Face's crate spm_precompiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::tokenizers {

class Charsmap {
 public:
  Charsmap(std::string_view bytes, const std::string& where);

  // Returns the replacement of the shortest key that the text begins with, or nothing if there is
  // no such key.
  std::optional<std::string_view> find(std::string_view text) const noexcept;

 private:
  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

// Throws DataError "tokenizers.bad-charsmap".
std::string decode_base64(std::string_view text, const std::string& where);

// Returns the end of the grapheme that starts at byte `at` of a valid text. Graphemes are Unicode's
// extended grapheme clusters, except that conjuncts of Indic scripts are split. This rarely
// matters, because the map treats graphemes of six bytes or more like their single characters.
std::size_t grapheme_end(std::string_view text, std::size_t at) noexcept;

}  // namespace hasten::tokenizers
