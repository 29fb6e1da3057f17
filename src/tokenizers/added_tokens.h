// File: tokenizers/added_tokens.h
// Finds the added tokens ([MASK] and the like) in a text, as Hugging Face's tokenizers does: first
// those to be taken as written, in the text as it came; then, in what is left and normalized, those
// marked `normalized`. Where several fit, the leftmost wins, then the longest.
//
//   AddedTokens added({{.id = 103, .content = "[MASK]", .special = true}}, normalizer);
//   added.find_raw("a [MASK]", matches);       // one match: bytes 2 to 8, id 103
//
// Thread rule: immutable once built; safe from many threads. The constructor throws DataError for
// tokens that cannot be told apart.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/tokenizers/options.h"
#include "normalizer.h"
#include "trie.h"

namespace hasten::tokenizers {

struct AddedMatch {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

class AddedTokens {
 public:
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const noexcept { return tokens_; }
  bool any_raw() const noexcept { return !raw_.owners.empty(); }
  bool any_normalized() const noexcept { return !normalized_.owners.empty(); }
  // Replace `matches`. The text must be valid UTF-8; matches are in order, and disjoint but for
  // tokens that start with white space.
  void find_raw(std::string_view text, std::vector<AddedMatch>& matches) const {
    find(raw_, text, matches);
  }
  void find_normalized(std::string_view text, std::vector<AddedMatch>& matches) const {
    find(normalized_, text, matches);
  }

  const AddedToken* with_id(std::int32_t id) const noexcept;
  const AddedToken* with_content(std::string_view content) const noexcept;
  // What decoding prints for the token: its normalized form where it is matched by that.
  const std::string& printed(const AddedToken& token) const noexcept;

 private:
  // Patterns of one kind: the trie numbers them, owners says whose they are.
  struct Patterns {
    Trie trie;
    std::vector<std::size_t> owners;
    std::array<bool, 256> starts{};
  };
  Patterns patterns(bool normalized) const;
  void find(const Patterns& patterns, std::string_view text,
            std::vector<AddedMatch>& matches) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> forms_;  // what each is matched by
  std::vector<std::size_t> by_id_;  // indices into tokens_, in the order of their ids
  Trie contents_;
  Patterns raw_;
  Patterns normalized_;
};

}  // namespace hasten::tokenizers
