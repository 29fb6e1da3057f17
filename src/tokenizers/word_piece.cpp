#include "tokenizers/word_piece.h"

#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"

namespace hasten::tokenizers {

WordPiece::WordPiece(std::vector<std::string> tokens, WordPieceOptions options)
    : options_(std::move(options)),
      tokens_(std::move(tokens)),
      trie_(tokens_),
      continuing_(trie_.walk(options_.continuing_subword_prefix)),
      unk_id_(trie_.find(options_.unk_token)) {
  if (unk_id_ == Trie::kNone) {
    throw DataError(
        "tokenizers.missing-token",
        {.what = "the vocabulary lacks the unknown token \"" + options_.unk_token + "\"",
         .hint = "check that the vocabulary belongs to this model"});
  }
}

std::optional<std::int32_t> WordPiece::find(std::string_view token) const noexcept {
  const std::int32_t id = trie_.find(token);
  return id == Trie::kNone ? std::nullopt : std::optional(id);
}

// Returns the longest token that starts at byte `start`. Tokens are whole characters, so a match
// can only end between characters.
WordPiece::Match WordPiece::longest(std::string_view word, std::size_t start) const noexcept {
  Match match;
  std::int32_t node = start == 0 ? Trie::kRoot : continuing_;
  for (std::size_t at = start; node != Trie::kNone && at < word.size();) {
    node = trie_.step(node, word[at++]);
    if (node == Trie::kNone) break;
    const std::int32_t id = trie_.value(node);
    if (id != Trie::kNone) match = {id, at};
  }
  return match;
}

bool WordPiece::too_long(std::string_view word) const noexcept {
  const auto limit = static_cast<std::uint64_t>(options_.max_input_chars_per_word);
  // Compares bytes first: a word has at least as many bytes as characters.
  return word.size() > limit && code_point_count(word) > limit;
}

void WordPiece::split(std::string_view word, std::vector<std::int32_t>& ids,
                      std::vector<std::uint32_t>* ends) const {
  const std::size_t ids_before = ids.size();
  const std::size_t ends_before = ends ? ends->size() : 0;
  bool covered = !too_long(word);
  for (std::size_t start = 0; covered && start < word.size();) {
    const Match match = longest(word, start);
    covered = match.id != Trie::kNone;
    if (!covered) break;
    ids.push_back(match.id);
    if (ends) ends->push_back(static_cast<std::uint32_t>(match.end));
    start = match.end;
  }
  if (covered) return;
  ids.resize(ids_before);
  ids.push_back(unk_id_);
  if (!ends) return;
  ends->resize(ends_before);
  ends->push_back(static_cast<std::uint32_t>(word.size()));
}

}  // namespace hasten::tokenizers
