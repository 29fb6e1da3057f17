// File: tokenizers/state.h
// The parts of a BertTokenizer (State), and the content of its files, from which it is built
// (Definition).
//
//   Definition definition = definition_from_json(file);   // definition.h
//   auto state = std::make_shared<const BertTokenizer::State>(std::move(definition));
//
// Thread rule: State is immutable. Its constructor throws DataError if the parts contradict each
// other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/tokenizers/bert_tokenizer.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/templates.h"
#include "tokenizers/word_piece.h"

namespace hasten::tokenizers {

struct DecoderOptions {
  std::string prefix = "##";
  bool cleanup = true;
};

// The content of a tokenizer's files.
struct Definition {
  // The added_tokens in it already have their ids.
  TokenizerOptions options;
  std::vector<std::string> vocabulary;  // by id; without the added tokens that follow it
  Templates templates;
  std::optional<DecoderOptions> decoder;  // if unset, decoding joins tokens with spaces
  StoredSettings stored;
  std::int64_t stored_stride =
      0;  // the stride of tokenizer.json's truncation, kept for save_pretrained
};

}  // namespace hasten::tokenizers

namespace hasten {

struct BertTokenizer::State {
  explicit State(tokenizers::Definition definition);

  TokenizerOptions options;
  const tokenizers::Normalizer& normalizer;
  tokenizers::WordPiece pieces;
  tokenizers::AddedTokens added;
  tokenizers::Templates templates;
  std::optional<tokenizers::DecoderOptions> decoder;
  StoredSettings stored;
  std::int64_t stored_stride = 0;

  // The largest id of a token, added tokens included, plus 1.
  std::int64_t size() const noexcept;
  std::optional<std::int32_t> find(std::string_view token) const noexcept;
  const std::string* token(std::int32_t id) const noexcept;  // null if there is no such id
};

}  // namespace hasten
