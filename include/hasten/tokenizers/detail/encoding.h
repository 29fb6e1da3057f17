// File: hasten/tokenizers/detail/encoding.h
// A text as the input of a model, and padding of several texts to one length.
//
//   std::vector<Encoding> rows = tokenizer.encode_batch(texts);
//   tokenizer.pad(rows);
//   pad(rows, {.length = 128, .pad_id = 0});      // the same without a tokenizer
//
// Thread rule: plain values. pad() throws UsageError "tokenizers.bad-padding".
// Source: Hugging Face tokenizers 0.23.3 (Encoding, pad_encodings).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/tokenizers/detail/options.h"

namespace hasten {

// One row. All vectors except the last two always have one entry per token.
struct Encoding {
  std::vector<std::int32_t> input_ids = {};
  std::vector<std::int32_t> token_type_ids = {};  // 0 for the first text, 1 for the second.
  std::vector<std::int32_t> attention_mask = {};  // 0 for padding.
  // 1 for tokens that are not from the text: [CLS], [SEP], padding.
  std::vector<std::int32_t> special_tokens_mask = {};
  // Filled only with EncodeOptions::offsets. `offsets` are the characters [first, second) of the
  // text that a token covers, in code points from 0 (an invalid byte sequence counts as one);
  // `word_ids` are the numbers of the words, from 0 in each text. Special tokens have (0, 0) and
  // -1.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> offsets = {};
  std::vector<std::int32_t> word_ids = {};

  std::size_t size() const noexcept { return input_ids.size(); }
};

// Pads every row to the length of the options; longer rows are unchanged. A row without tokens gets
// offsets if another row has them, and if no row has tokens.
HASTEN_API void pad(std::span<Encoding> rows, const PadOptions& options = {});

}  // namespace hasten
