// File: tokenizers/state.h
// What a BertTokenizer is made of, and what its files say before it is made.
//
//   Definition definition = definition_from_json(file);   // definition.h
//   auto state = std::make_shared<const BertTokenizer::State>(std::move(definition));
//
// Thread rule: State is immutable. Its constructor throws DataError where the parts contradict
// each other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "normalizer.h"
#include "templates.h"
#include "word_piece.h"

namespace hasten::tokenizers {

struct DecoderOptions {
  std::string prefix = "##";
  bool cleanup = true;
};

// Everything a tokenizer's files say.
struct Definition {
  // added_tokens of it have their ids already.
  TokenizerOptions options;
  std::vector<std::string> vocabulary;  // by id, without the added tokens that follow it
  Templates templates;
  std::optional<DecoderOptions> decoder;  // unset: tokens are joined with blanks
  StoredSettings stored;
  std::int64_t stored_stride = 0;  // kept for save_pretrained
};

}  // namespace hasten::tokenizers

namespace hasten {

struct BertTokenizer::State {
  explicit State(tokenizers::Definition definition);

  TokenizerOptions options;
  tokenizers::Normalizer normalizer;
  tokenizers::WordPiece pieces;
  tokenizers::AddedTokens added;
  tokenizers::Templates templates;
  std::optional<tokenizers::DecoderOptions> decoder;
  StoredSettings stored;
  std::int64_t stored_stride = 0;

  std::int64_t size() const noexcept;
  std::optional<std::int32_t> find(std::string_view token) const noexcept;
  const std::string* token(std::int32_t id) const noexcept;  // null: no such id
};

}  // namespace hasten
