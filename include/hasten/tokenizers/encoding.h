// File: hasten/tokenizers/encoding.h
// A text as a model takes it, and padding of several to one length.
//
//   std::vector<Encoding> rows = tokenizer.encode_batch(texts);
//   tokenizer.pad(rows);                       // or pad(rows, {.length = 128, .pad_id = 0});
//
// Thread rule: plain values. pad() throws UsageError for lengths that make no sense.
// Source: Hugging Face tokenizers 0.23.3 (Encoding, pad_encodings).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hasten/tokenizers/options.h"

namespace hasten {

struct Encoding {
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> token_type_ids;  // 0 for the first text, 1 for the second
  std::vector<std::int32_t> attention_mask;  // 0 for padding
  std::vector<std::int32_t>
      special_tokens_mask;  // 1 for tokens that no text holds: [CLS], [SEP], padding
  // With EncodeOptions::offsets only: the characters [first, second) of its text that a token
  // stands for, counted in code points from 0 (a bad byte sequence counts as one), and the word it
  // is part of, counted in each text from 0; (0, 0) and -1 for special tokens.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> offsets;
  std::vector<std::int32_t> word_ids;

  std::size_t size() const noexcept { return input_ids.size(); }
};

// Pads every row to the length the options say; longer rows stay as they are.
void pad(std::span<Encoding> rows, const PadOptions& options = {});

}  // namespace hasten
