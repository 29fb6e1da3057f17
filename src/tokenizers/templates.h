// File: tokenizers/templates.h
// Where special tokens go around one text or two ([CLS] A [SEP], [CLS] A [SEP] B [SEP]), how much
// of the texts is kept, and the Encoding made of it all.
//
//   const auto [first, second] = kept_lengths(90, 60, 100, Truncation::longest_first);   // 50, 50
//
// Thread rule: plain values and pure functions. kept_lengths throws DataError where no cut can do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/tokenizers/encoding.h"

namespace hasten::tokenizers {

// The tokens of one text.
struct TextTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> offsets;  // these two only where asked for
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
  // Of special pieces only: the name in the file, and the tokens it stands for.
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;
};

struct Templates {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> pair;
  bool from_file = true;  // false: there is no post-processor, texts are just put together

  const std::vector<TemplatePiece>& of(bool is_pair) const noexcept {
    return is_pair ? pair : single;
  }
};

// [CLS] A [SEP] and [CLS] A [SEP] B [SEP], as BERT was trained.
Templates bert_templates(const std::string& cls, std::int32_t cls_id, const std::string& sep,
                         std::int32_t sep_id);
// A, and A B.
Templates bare_templates();

std::size_t special_count(const std::vector<TemplatePiece>& pieces) noexcept;

// How many tokens of each text stay so that both together are at most `room`.
std::pair<std::size_t, std::size_t> kept_lengths(std::size_t first, std::size_t second,
                                                 std::size_t room, Truncation truncation);

// Puts the texts (second may be null) into the template, each cut to options.max_length where
// options.truncation says so. max_length must be filled in already.
Encoding assemble(const Templates& templates, const TextTokens& first, const TextTokens* second,
                  const EncodeOptions& options);

}  // namespace hasten::tokenizers
