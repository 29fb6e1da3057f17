#include "tokenizers/text_encoder.h"

#include <limits>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/words.h"

namespace hasten::tokenizers {

void TextEncoder::run(std::string_view text, std::size_t token_limit, TextTokens& out) {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("tokenizers.text-too-long",
                    {.what = "a text of 2 GiB or more",
                     .got = human_bytes(static_cast<std::int64_t>(text.size())),
                     .hint = "split it into shorter texts"});
  }
  out_ = &out;
  out.clear();
  token_limit_ = token_limit;
  first_character_ = 0;
  word_ = 0;
  if (!is_utf8(text)) text = repaired_ = repair_utf8(text);

  raw_.clear();
  if (state_.added.has_raw()) state_.added.find_raw(text, raw_);
  std::size_t at = 0;
  for (const AddedMatch& match : raw_) {
    if (at < match.begin) encode_unmatched(text.substr(at, match.begin - at));
    if (has_reached_limit()) return;
    const std::uint32_t begin = character_index(text, at, match.begin);
    const std::uint32_t end = character_index(text, at, match.end);
    add_token(match.id, begin, end);
    first_character_ = end;
    at = match.end;
  }
  if (at < text.size() && !has_reached_limit()) encode_unmatched(text.substr(at));
}

// Returns the number of characters before byte `to`; first_character_ is the number before byte
// `from`. A token may start before the end of the previous one if both take the white space between
// them.
std::uint32_t TextEncoder::character_index(std::string_view text, std::size_t from,
                                           std::size_t to) const {
  if (!offsets_) return 0;
  if (to < from) return first_character_ - code_point_count(text.substr(to, from - to));
  return first_character_ + code_point_count(text.substr(from, to - from));
}

// Encodes a part of the text that contains no token that is matched as written.
void TextEncoder::encode_unmatched(std::string_view text) {
  state_.normalizer.run(text, offsets_, normalized_);
  if (!state_.added.has_normalized()) return encode_normalized(0, normalized_.bytes.size());
  state_.added.find_normalized(normalized_.text(), normalized_matches_);
  std::size_t at = 0;
  for (const AddedMatch& match : normalized_matches_) {
    if (at < match.begin) encode_normalized(at, match.begin);
    if (has_reached_limit()) return;
    std::uint32_t begin = 0, end = 0;
    if (offsets_) {
      begin = first_character_ + normalized_.origins.data()[match.begin];
      end = first_character_ + normalized_.origins.data()[match.end - 1] + 1;
    }
    add_token(match.id, begin, end);
    at = match.end;
  }
  if (at < normalized_.bytes.size() && !has_reached_limit())
    encode_normalized(at, normalized_.bytes.size());
}

// Encodes a part of the normalized text that contains no added token.
void TextEncoder::encode_normalized(std::size_t begin, std::size_t end) {
  for_each_word(
      normalized_.text().substr(begin, end - begin),
      [this, begin](std::string_view word, std::size_t at) { return add_word(word, begin + at); });
}

bool TextEncoder::add_word(std::string_view word, std::size_t at) {
  if (!offsets_) {
    state_.pieces.split(word, out_->ids, nullptr);
    return !has_reached_limit();
  }
  ends_.clear();
  state_.pieces.split(word, out_->ids, &ends_);
  const std::uint32_t* origins = normalized_.origins.data() + at;
  std::uint32_t start = 0;
  for (const std::uint32_t end : ends_) {
    out_->offsets.emplace_back(first_character_ + origins[start],
                               first_character_ + origins[end - 1] + 1);
    out_->words.push_back(word_);
    start = end;
  }
  ++word_;
  return !has_reached_limit();
}

void TextEncoder::add_token(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
  out_->ids.push_back(id);
  if (!offsets_) return;
  out_->offsets.emplace_back(begin, end);
  out_->words.push_back(word_++);
}

}  // namespace hasten::tokenizers
