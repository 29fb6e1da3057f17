// File: tokenizers/pipeline/pipeline.h
// The parts of a tokenizer.json in the order in which a text passes through them, and the encoder
// that runs them on a text.
//
//   const Pipeline pipeline = read_pipeline("tokenizer.json");     // pipeline_json.h
//   PipelineEncoder encoder;
//   encoder.run(pipeline, "Hello", /*offsets=*/false, /*token_limit=*/510, tokens, nullptr);
//
// Thread rule: a Pipeline is immutable; an encoder serves one thread at a time. run() throws
// DataError "tokenizers.text-too-long", "tokenizers.bad-pattern", and what the model throws.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hasten/tokenizers/tokenizer.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/pipeline/decoder_steps.h"
#include "tokenizers/pipeline/model.h"
#include "tokenizers/pipeline/normalizer_steps.h"
#include "tokenizers/pipeline/splitter_steps.h"
#include "tokenizers/pipeline/word_cache.h"
#include "tokenizers/templates.h"

namespace hasten::tokenizers {

struct PostProcessing {
  Templates templates = plain_templates();
  // One element for each processor that removes blanks from offsets. It is true if the
  // pre-tokenizer has put a blank before the text.
  std::vector<bool> trims;
};

struct Pipeline {
  NormalizerSteps normalizer;
  AddedTokens added{{}, std::vector<std::string>{}};
  SplitterSteps splitters;
  // True if the words are replaced by the letters of their bytes (letter_of_byte) in the last step.
  // The encoder does so only for words that it does not know yet.
  bool writes_byte_letters = false;
  std::unique_ptr<WordModel> model;
  PostProcessing post;
  DecoderSteps decoder;
  bool has_decoder = false;
  StoredSettings stored;
  TokenizerOptions options;  // sides and the name of the padding token

  // True if the splitters depend on places in the text.
  bool needs_places() const noexcept;
};

// The number of blanks at the beginning and at the end of each token.
using BlankCounts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

class PipelineEncoder {
 public:
  // Replaces `out`, and `blanks` unless it is null. `blanks` requires `offsets`. Stops after the
  // word that brings the number of tokens to `token_limit`.
  void run(const Pipeline& pipeline, std::string_view text, bool offsets, std::size_t token_limit,
           TextTokens& out, BlankCounts* blanks);

  // True if a text has been so long that the buffers are large and should be freed.
  bool has_large_buffers() const noexcept { return longest_text_ > kLongTextInBytes; }

 private:
  static constexpr std::size_t kLongTextInBytes = 256 << 10;  // its buffers take about 10 MB

  void add_unmatched(std::string_view text, std::size_t begin, std::size_t end);
  void add_word(const TextPart& part);
  void add_word(const AlignedView& word);
  void split_long(std::string_view word);
  void split_short(std::string_view word, std::uint32_t begin);
  void split_by_letters(std::string_view word);
  void split_new(std::string_view word);
  void add_tokens(const AlignedView& word);
  void add_offsets(std::uint32_t begin, std::uint32_t end);
  std::uint32_t character_at(std::size_t byte) const noexcept;

  const Pipeline* pipeline_ = nullptr;
  bool offsets_ = false;
  TextTokens* out_ = nullptr;
  BlankCounts* blanks_ = nullptr;
  std::int32_t word_ = 0;
  std::string repaired_;
  std::size_t text_size_ = 0, longest_text_ = 0;
  std::vector<std::uint32_t> character_of_byte_;  // empty for ASCII
  std::vector<AddedMatch> raw_, normalized_matches_;
  AlignedBuffer original_, letters_;
  std::array<AlignedBuffer, 2> normalized_;
  SplitText split_;
  Scratch scratch_;
  ModelScratch memory_;
  WordCache cache_;
  std::vector<WordPart> parts_, new_parts_;
  std::string mapped_;
  std::vector<std::uint32_t> bytes_of_mapped_, cuts_;
};

// Moves the offsets of tokens that begin or end with blanks. `first` is the index of the first
// token that is kept.
void trim_offsets(const PostProcessing& post, const BlankCounts& blanks, std::size_t first,
                  TextTokens& tokens);

// Joins the pieces of text that the ids stand for.
std::string decode_ids(const Pipeline& pipeline, std::span<const std::int32_t> ids,
                       bool skip_special_tokens);

}  // namespace hasten::tokenizers
