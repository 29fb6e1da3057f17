// File: tokenizers/word_piece.h
// The vocabulary and the WordPiece algorithm: a word becomes the longest token that starts it, then
// the longest continuation ("##...") that starts the rest, and so on. A word that cannot be covered
// in this way, or that is too long, becomes the unknown token.
//
//   WordPiece pieces({"[UNK]", "play", "##ing"}, {.unk_token = "[UNK]"});
//   pieces.split("playing", ids, nullptr);     // appends 1, 2
//
// Thread rule: immutable once built; safe from many threads. The constructor throws DataError
// "tokenizers.missing-token" if the vocabulary lacks unk_token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/trie.h"

namespace hasten::tokenizers {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  std::int64_t max_input_chars_per_word = 100;
};

class WordPiece {
 public:
  // tokens[i] has the id i.
  WordPiece(std::vector<std::string> tokens, WordPieceOptions options);

  std::int32_t size() const noexcept { return static_cast<std::int32_t>(tokens_.size()); }
  const std::string& token(std::int32_t id) const noexcept {
    return tokens_[static_cast<std::size_t>(id)];
  }
  std::optional<std::int32_t> find(std::string_view token) const noexcept;
  std::int32_t unk_id() const noexcept { return unk_id_; }
  const WordPieceOptions& options() const noexcept { return options_; }

  // Appends the ids of one word (valid UTF-8, not empty) and, unless `ends` is null, the byte of
  // the word at which each of them ends.
  void split(std::string_view word, std::vector<std::int32_t>& ids,
             std::vector<std::uint32_t>* ends) const;

 private:
  struct Match {
    std::int32_t id = Trie::kNone;
    std::size_t end = 0;
  };
  Match longest(std::string_view word, std::size_t start) const noexcept;
  bool too_long(std::string_view word) const noexcept;

  WordPieceOptions options_;
  std::vector<std::string> tokens_;
  Trie trie_;
  std::int32_t continuing_;  // the node that continuing_subword_prefix leads to
  std::int32_t unk_id_;
};

}  // namespace hasten::tokenizers
