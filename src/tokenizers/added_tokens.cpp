#include "tokenizers/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"

namespace hasten::tokenizers {
namespace {

// Returns the end and the number of the longest pattern that starts at `at`. The number is
// Trie::kNone if there is no such pattern.
std::pair<std::size_t, std::int32_t> longest_at(const Trie& trie, std::string_view text,
                                                std::size_t at) noexcept {
  std::pair<std::size_t, std::int32_t> found{at, Trie::kNone};
  for (std::int32_t node = Trie::kRoot; at < text.size();) {
    node = trie.step(node, text[at++]);
    if (node == Trie::kNone) break;
    if (trie.value(node) != Trie::kNone) found = {at, trie.value(node)};
  }
  return found;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) noexcept {
  const Unicode& unicode = Unicode::get();
  if (begin > 0 && unicode.is(decode_utf8_before(text.data() + begin).value, Unicode::word))
    return true;
  return end < text.size() && unicode.is(decode_utf8(text.data() + end).value, Unicode::word);
}

std::size_t skip_white_back(std::string_view text, std::size_t at) noexcept {
  while (at > 0) {
    const DecodedCharacter character = decode_utf8_before(text.data() + at);
    if (!Unicode::get().is(character.value, Unicode::white)) break;
    at -= character.size;
  }
  return at;
}

std::vector<std::string> match_texts_of(const std::vector<AddedToken>& tokens,
                                        const Normalizer& normalizer) {
  std::vector<std::string> texts;
  Normalized normalized;
  for (const AddedToken& token : tokens) {
    if (token.normalized) normalizer.run(token.content, false, normalized);
    texts.emplace_back(token.normalized ? normalized.text() : std::string_view(token.content));
  }
  return texts;
}

std::size_t skip_white(std::string_view text, std::size_t at) noexcept {
  while (at < text.size()) {
    const DecodedCharacter character = decode_utf8(text.data() + at);
    if (!Unicode::get().is(character.value, Unicode::white)) break;
    at += character.size;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer)
    : AddedTokens(tokens, match_texts_of(tokens, normalizer)) {}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> match_texts)
    : tokens_(std::move(tokens)), match_texts_(std::move(match_texts)) {
  raw_ = patterns(false);
  normalized_ = patterns(true);
  std::vector<std::string> contents;
  for (const AddedToken& token : tokens_) contents.push_back(token.content);
  contents_ = Trie(contents);
  by_id_.resize(tokens_.size());
  std::iota(by_id_.begin(), by_id_.end(), std::size_t{0});
  std::sort(by_id_.begin(), by_id_.end(),
            [this](std::size_t a, std::size_t b) { return tokens_[a].id < tokens_[b].id; });
}

AddedTokens::Patterns AddedTokens::patterns(bool normalized) const {
  Patterns out;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].normalized != normalized) continue;
    if (match_texts_[i].empty()) {
      throw DataError(
          "tokenizers.bad-added-token",
          {.what = "the added token \"" + tokens_[i].content + "\" is empty after normalization",
           .hint = "set its \"normalized\" to false"});
    }
    out.starts[static_cast<unsigned char>(match_texts_[i][0])] = true;
    out.token_indices.push_back(i);
    keys.push_back(match_texts_[i]);
  }
  out.trie = Trie(keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto found = static_cast<std::size_t>(out.trie.find(keys[i]));
    if (found == i) continue;
    throw DataError("tokenizers.bad-added-token",
                    {.what = "the added tokens \"" + tokens_[out.token_indices[i]].content +
                             "\" and \"" + tokens_[out.token_indices[found]].content +
                             "\" are both matched by \"" + keys[i] + "\"",
                     .hint = "keep one of them, or set their \"normalized\" to false"});
  }
  return out;
}

void AddedTokens::find(const Patterns& patterns, std::string_view text,
                       std::vector<AddedMatch>& matches) const {
  matches.clear();
  std::size_t covered = 0;  // the end of the last match, including the white space it took
  for (std::size_t at = 0; at < text.size();) {
    if (!patterns.starts[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [pattern_end, number] = longest_at(patterns.trie, text, at);
    if (number == Trie::kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[patterns.token_indices[static_cast<std::size_t>(number)]];
    AddedMatch match{at, pattern_end, token.id};
    at = pattern_end;  // a rejected match is skipped as a whole, as in Hugging Face tokenizers
    if (token.single_word && touches_word(text, match.begin, match.end)) continue;
    if (token.lstrip) match.begin = std::max(skip_white_back(text, match.begin), covered);
    if (token.rstrip) match.end = skip_white(text, match.end);
    covered = match.end;
    matches.push_back(match);
  }
}

const AddedToken* AddedTokens::find_by_id(std::int32_t id) const noexcept {
  const auto found = std::lower_bound(
      by_id_.begin(), by_id_.end(), id,
      [this](std::size_t index, std::int32_t value) { return tokens_[index].id < value; });
  return found == by_id_.end() || tokens_[*found].id != id ? nullptr : &tokens_[*found];
}

const AddedToken* AddedTokens::find_by_content(std::string_view content) const noexcept {
  const std::int32_t index = contents_.find(content);
  return index == Trie::kNone ? nullptr : &tokens_[static_cast<std::size_t>(index)];
}

const std::string& AddedTokens::decoded_text(const AddedToken& token) const noexcept {
  return match_texts_[static_cast<std::size_t>(&token - tokens_.data())];
}

}  // namespace hasten::tokenizers
