// File: tokenizers/added_tokens.h
// Finds added tokens ([MASK] and the like) in a text, as Hugging Face tokenizers does: first the
// tokens that are matched as written, in the original text; then the tokens marked `normalized`, in
// the normalized text between these matches. If several tokens match, the leftmost wins, then the
// longest.
//
//   AddedTokens added({{.id = 103, .content = "[MASK]", .special = true}}, normalizer);
//   added.find_raw("a [MASK]", matches);       // one match: bytes 2 to 8, id 103
//
// Thread rule: immutable once built; safe from many threads. The constructor throws DataError
// "tokenizers.bad-added-token" if two tokens are matched by the same text, or if normalization
// leaves nothing of a token.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/tokenizers/detail/options.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/trie.h"

namespace hasten::tokenizers {

// The bytes [begin, end) of a text, and the id of the token there.
struct AddedMatch {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

class AddedTokens {
 public:
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);
  // match_texts[i] is the text that tokens[i] matches: its content, which is normalized if the
  // token is marked `normalized`.
  AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> match_texts);

  const std::vector<AddedToken>& tokens() const noexcept { return tokens_; }
  bool has_raw() const noexcept { return !raw_.token_indices.empty(); }
  bool has_normalized() const noexcept { return !normalized_.token_indices.empty(); }
  // Both functions replace `matches` by the matches in order. The text must be valid UTF-8. Matches
  // overlap only if the later token starts with white space.
  void find_raw(std::string_view text, std::vector<AddedMatch>& matches) const {
    find(raw_, text, matches);
  }
  void find_normalized(std::string_view text, std::vector<AddedMatch>& matches) const {
    find(normalized_, text, matches);
  }

  // Both functions return null if there is no such token.
  const AddedToken* find_by_id(std::int32_t id) const noexcept;
  const AddedToken* find_by_content(std::string_view content) const noexcept;
  // Returns the text that decoding prints for the token, which is the text that it matches.
  const std::string& decoded_text(const AddedToken& token) const noexcept;

 private:
  // Patterns of one kind. The trie numbers them, token_indices maps the numbers to indices into
  // tokens_, and starts marks the first bytes of patterns.
  struct Patterns {
    Trie trie;
    std::vector<std::size_t> token_indices;
    std::array<bool, 256> starts{};
  };
  Patterns patterns(bool normalized) const;
  void find(const Patterns& patterns, std::string_view text,
            std::vector<AddedMatch>& matches) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> match_texts_;  // the text that each token matches
  std::vector<std::size_t> by_id_;        // indices into tokens_, sorted by token id
  Trie contents_;
  Patterns raw_;
  Patterns normalized_;
};

}  // namespace hasten::tokenizers
