#include "tokenizers/pipeline/pipeline.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/unicode.h"

namespace hasten::tokenizers {
namespace {

bool is_blank(char32_t c) {
  return c == letter_of_byte(' ') || Unicode::get().is(c, Unicode::white);
}

std::pair<std::uint32_t, std::uint32_t> count_blanks(std::string_view token) {
  std::pair<std::uint32_t, std::uint32_t> count{0, 0};
  for (std::size_t at = 0; at < token.size(); ++count.first) {
    const DecodedCharacter character = decode_utf8(token.data() + at);
    if (!is_blank(character.value)) break;
    at += character.size;
  }
  for (std::size_t end = token.size(); end > 0; ++count.second) {
    const DecodedCharacter character = decode_utf8_before(token.data() + end);
    if (!is_blank(character.value)) break;
    end -= character.size;
  }
  return count;
}

std::size_t total_size(const std::vector<std::string>& tokens) {
  std::size_t size = 0;
  for (const std::string& token : tokens) size += token.size();
  return size;
}

}  // namespace

bool Pipeline::needs_places() const noexcept {
  const auto needs = [](const auto& step) { return step->needs_places(); };
  const auto inserts = [](const auto& step) { return step->inserts_first(); };
  return std::any_of(splitters.begin(), splitters.end(), needs) ||
         std::any_of(normalizer.begin(), normalizer.end(), inserts);
}

void PipelineEncoder::run(const Pipeline& pipeline, std::string_view text, bool offsets,
                          std::size_t token_limit, TextTokens& out, BlankCounts* blanks) {
  require_text_size(text.size());
  longest_text_ = std::max(longest_text_, text.size());
  pipeline_ = &pipeline;
  offsets_ = offsets;
  out_ = &out;
  blanks_ = blanks;
  word_ = 0;
  out.clear();
  if (blanks != nullptr) blanks->clear();
  if (!is_utf8(text)) text = repaired_ = repair_utf8(text);
  text_size_ = text.size();

  const bool tracks = offsets || pipeline.needs_places();
  for (AlignedBuffer* buffer :
       {&split_.text, &original_, &letters_, &normalized_[0], &normalized_[1]}) {
    buffer->clear();
    buffer->tracks = tracks;
  }
  split_.parts.clear();
  character_of_byte_.clear();
  if (offsets && ascii_prefix(text) < text.size()) {
    std::uint32_t count = 0;
    for (const char c : text) {
      if ((c & 0xC0) != 0x80) ++count;
      character_of_byte_.push_back(count - 1);
    }
  }

  raw_.clear();
  if (pipeline.added.has_raw()) pipeline.added.find_raw(text, raw_);
  std::size_t at = 0;
  for (const AddedMatch& match : raw_) {
    if (at < match.begin) add_unmatched(text, at, match.begin);
    const auto begin = static_cast<std::uint32_t>(split_.text.bytes.size());
    split_.text.append_original(text.substr(match.begin, match.end - match.begin),
                                static_cast<std::uint32_t>(match.begin));
    split_.parts.push_back(split_.slice(begin, split_.text.bytes.size(), match.id));
    at = match.end;
  }
  if (at < text.size()) add_unmatched(text, at, text.size());

  for (const auto& step : pipeline.splitters) step->run(split_, scratch_);
  for (const TextPart& part : split_.parts) {
    if (out.ids.size() >= token_limit) return;
    add_word(part);
  }
}

// Normalizes a part of the text that contains no token that is matched as written, and adds it to
// split_.
void PipelineEncoder::add_unmatched(std::string_view text, std::size_t begin, std::size_t end) {
  original_.clear();
  original_.append_original(text.substr(begin, end - begin), static_cast<std::uint32_t>(begin));
  const AlignedView original =
      original_.view(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
  const AlignedView normalized = normalize(pipeline_->normalizer, original, normalized_, scratch_);
  const std::size_t base = split_.text.bytes.size(), size = normalized.bytes.size();
  if (size == 0) return;
  require_text_size(base + size);
  split_.text.append(normalized, 0, size);
  normalized_matches_.clear();
  if (pipeline_->added.has_normalized())
    pipeline_->added.find_normalized(normalized.bytes, normalized_matches_);
  std::size_t at = 0;
  for (const AddedMatch& match : normalized_matches_) {
    if (at < match.begin) split_.parts.push_back(split_.slice(base + at, base + match.begin));
    split_.parts.push_back(split_.slice(base + match.begin, base + match.end, match.id));
    at = match.end;
  }
  if (at < size) split_.parts.push_back(split_.slice(base + at, base + size));
}

void PipelineEncoder::add_word(const TextPart& part) {
  const AlignedView word = split_.view(part);
  if (part.token < 0) {
    add_word(word);
  } else {
    out_->ids.push_back(part.token);
    if (offsets_) {
      add_offsets(part.source_begin, part.source_end);
      if (blanks_ != nullptr) blanks_->push_back(count_blanks(word.bytes));
    }
  }
  if (offsets_) out_->words.resize(out_->ids.size(), word_);
  ++word_;
}

void PipelineEncoder::add_word(const AlignedView& word) {
  parts_.clear();
  if (!pipeline_->writes_byte_letters) {
    split_long(word.bytes);
    return add_tokens(word);
  }
  const ByteRange range = range_of_source(word);
  if (range.begin > 0 || range.end < word.bytes.size()) {
    // Letters replace only a part of this word, so each byte must be checked.
    letters_.clear();
    write_byte_letters(word, letters_);
    const AlignedView written = letters_.view(word.source_begin, word.source_end);
    pipeline_->model->split(written.bytes, memory_, parts_);
    return add_tokens(written);
  }
  split_short(word.bytes, 0);
  add_tokens(word);
}

// Looks up a long word segment by segment.
void PipelineEncoder::split_long(std::string_view word) {
  if (word.size() <= WordCache::kMaxWordBytes) return split_short(word, 0);
  pipeline_->model->cut(word, cuts_);
  std::uint32_t begin = 0;
  for (const std::uint32_t end : cuts_) {
    // A segment begins where the parts before it end, which is earlier than its first byte if the
    // model has dropped unknown characters.
    split_short(word.substr(begin, end - begin), parts_.empty() ? 0 : parts_.back().end);
    begin = end;
  }
}

// Appends the parts of a word, or of a segment whose parts begin at byte `begin` of its word.
void PipelineEncoder::split_short(std::string_view word, std::uint32_t begin) {
  const std::size_t before = parts_.size();
  if (word.size() > WordCache::kMaxWordBytes) {
    new_parts_.clear();
    split_new(word);
    parts_.insert(parts_.end(), new_parts_.begin(), new_parts_.end());
  } else {
    const std::uint64_t hash = hash_bytes(word);
    std::span<const WordPart> known;
    if (!cache_.find(word, hash, known)) {
      new_parts_.clear();
      split_new(word);
      cache_.insert(word, hash, new_parts_);
      known = new_parts_;
    }
    parts_.insert(parts_.end(), known.begin(), known.end());
  }
  if (begin == 0) return;
  for (std::size_t i = before; i < parts_.size(); ++i) {
    parts_[i].begin += begin;
    parts_[i].end += begin;
  }
}

void PipelineEncoder::split_new(std::string_view word) {
  if (pipeline_->writes_byte_letters) return split_by_letters(word);
  pipeline_->model->split(word, memory_, new_parts_);
}

// Splits the letters of a word's bytes, and converts the parts to bytes of the word.
void PipelineEncoder::split_by_letters(std::string_view word) {
  mapped_.clear();
  bytes_of_mapped_.clear();
  for (std::size_t i = 0; i < word.size(); ++i) {
    append_utf8(letter_of_byte(static_cast<unsigned char>(word[i])), mapped_);
    bytes_of_mapped_.resize(mapped_.size(), static_cast<std::uint32_t>(i));
  }
  pipeline_->model->split(mapped_, memory_, new_parts_);
  for (WordPart& part : new_parts_) {
    if (part.end > mapped_.size()) continue;
    part.begin = bytes_of_mapped_[part.begin];
    part.end = bytes_of_mapped_[part.end - 1] + 1;
  }
}

void PipelineEncoder::add_tokens(const AlignedView& word) {
  for (const WordPart& part : parts_) {
    out_->ids.push_back(part.id);
    if (!offsets_) continue;
    if (part.begin < part.end && part.end <= word.bytes.size())
      add_offsets(word.alignments[part.begin].begin, word.alignments[part.end - 1].end);
    else  // the bytes of a prefix or suffix of the model, which are nowhere in the text
      add_offsets(part.begin, part.end);
    if (blanks_ != nullptr)
      blanks_->push_back(count_blanks(pipeline_->model->vocabulary().token(part.id).value_or("")));
  }
}

std::uint32_t PipelineEncoder::character_at(std::size_t byte) const noexcept {
  return character_of_byte_.empty() ? static_cast<std::uint32_t>(byte) : character_of_byte_[byte];
}

// Appends the offsets of bytes of the text, in characters.
void PipelineEncoder::add_offsets(std::uint32_t begin, std::uint32_t end) {
  if (begin < text_size_) {
    const std::uint32_t first = character_at(begin);
    if (end < text_size_)
      end = character_at(end);
    else
      end = (end > 0 && end - 1 < text_size_ ? character_at(end - 1) : first + 1) + 1;
    begin = first;
  }
  out_->offsets.emplace_back(begin, end);
}

void trim_offsets(const PostProcessing& post, const BlankCounts& blanks, std::size_t first,
                  TextTokens& tokens) {
  for (const bool has_blank : post.trims) {
    for (std::size_t i = 0; i < tokens.offsets.size(); ++i) {
      auto& [begin, end] = tokens.offsets[i];
      auto [leading, trailing] = blanks[i];
      // The blank that the pre-tokenizer has put there is not in the text.
      if ((i == first || begin == 0) && has_blank && leading == 1) leading = 0;
      begin = std::min(begin + leading, end);
      if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
    }
  }
}

std::string decode_ids(const Pipeline& pipeline, std::span<const std::int32_t> ids,
                       bool skip_special_tokens) {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    std::string token;
    if (const AddedToken* added = pipeline.added.find_by_id(id)) {
      token = pipeline.added.decoded_text(*added);
    } else if (const auto known = pipeline.model->vocabulary().token(id)) {
      token = *known;
    } else {
      continue;
    }
    const AddedToken* special =
        skip_special_tokens ? pipeline.added.find_by_content(token) : nullptr;
    if (special == nullptr || !special->special) tokens.push_back(std::move(token));
  }
  if (!pipeline.has_decoder) return join(tokens, " ");
  Matcher matcher;
  for (const auto& step : pipeline.decoder) {
    const std::size_t before = total_size(tokens);
    step->run(tokens, matcher);
    const std::size_t after = total_size(tokens);
    if (after > before) require_text_size(after);
  }
  return join(tokens, "");
}

}  // namespace hasten::tokenizers
