// File: tokenizers/templates.h
// Places special tokens around one text or two ([CLS] A [SEP], [CLS] A [SEP] B [SEP]), computes how
// much of each text is kept, and builds the Encoding.
//
//   const auto [first, second] = kept_lengths(90, 60, 100, Truncation::longest_first);   // 50, 50
//
// Thread rule: plain values and pure functions. kept_lengths and assemble throw DataError
// "tokenizers.cannot-truncate" if no permitted cut is enough.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/tokenizers/detail/encoding.h"

namespace hasten::tokenizers {

// The tokens of one text.
struct TextTokens {
  std::vector<std::int32_t> ids;
  // The characters [first, second) of each token; empty unless offsets are requested.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> offsets;
  // The number of the word of each token, from 0; empty unless offsets are requested.
  std::vector<std::int32_t> words;

  void clear() noexcept {
    ids.clear();
    offsets.clear();
    words.clear();
  }
};

struct TemplatePiece {
  enum class Kind { first_text, second_text, special };
  Kind kind = Kind::first_text;
  std::int32_t type_id = 0;
  // For special pieces only: the name in the file, and the ids and texts of its tokens.
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;
};

struct Templates {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> pair;
  bool from_file = true;  // if false, there is no post-processor; texts are only concatenated

  const std::vector<TemplatePiece>& for_pair(bool is_pair) const noexcept {
    return is_pair ? pair : single;
  }
};

// Returns [CLS] A [SEP] and [CLS] A [SEP] B [SEP], which BERT was trained with.
Templates bert_templates(const std::string& cls, std::int32_t cls_id, const std::string& sep,
                         std::int32_t sep_id);
// Returns A and A B, without special tokens.
Templates plain_templates();

std::size_t special_count(const std::vector<TemplatePiece>& pieces) noexcept;

// Returns how many tokens of each text are kept so that both texts together have at most `room`
// tokens.
std::pair<std::size_t, std::size_t> kept_lengths(std::size_t first, std::size_t second,
                                                 std::size_t room, Truncation truncation);

// Puts the texts into the template and, if options.truncation asks for it, cuts them so that the
// row has at most options.max_length tokens. `second` may be null. max_length must already be
// resolved.
Encoding assemble(const Templates& templates, const TextTokens& first, const TextTokens* second,
                  const EncodeOptions& options);

}  // namespace hasten::tokenizers
