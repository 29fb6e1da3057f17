// File: tokenizers/text_encoder.h
// Converts one text to its tokens: finds added tokens, normalizes the rest, splits it into words
// and the words into pieces. Keeps its buffers from text to text.
//
//   TextEncoder encoder(state, /*offsets=*/false);
//   encoder.run("Hello, world!", /*token_limit=*/510, tokens);
//
// Thread rule: one thread at a time; encoders on several threads may share the state. Throws
// DataError "tokenizers.text-too-long" for a text of 2 GiB or more.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/state.h"

namespace hasten::tokenizers {

class TextEncoder {
 public:
  TextEncoder(const BertTokenizer::State& state, bool offsets) : state_(state), offsets_(offsets) {}

  // Replaces `out`. Stops after the word that brings the number of tokens to `token_limit`.
  void run(std::string_view text, std::size_t token_limit, TextTokens& out);

 private:
  void encode_unmatched(std::string_view text);
  void encode_normalized(std::size_t begin, std::size_t end);
  std::uint32_t character_index(std::string_view text, std::size_t from, std::size_t to) const;
  bool add_word(std::string_view word, std::size_t at);
  void add_token(std::int32_t id, std::uint32_t begin, std::uint32_t end);
  bool has_reached_limit() const noexcept { return out_->ids.size() >= token_limit_; }

  const BertTokenizer::State& state_;
  const bool offsets_;
  TextTokens* out_ = nullptr;
  std::size_t token_limit_ = 0;
  // The index, in the whole text, of the first character of the part being encoded.
  std::uint32_t first_character_ = 0;
  std::int32_t word_ = 0;
  std::string repaired_;
  std::vector<AddedMatch> raw_;
  std::vector<AddedMatch> normalized_matches_;
  Normalized normalized_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace hasten::tokenizers
