// File: tokenizers/pipeline/decoder_steps.h
// The decoders of tokenizer.json, which turn tokens into pieces of text.
//
//   DecoderSteps steps;
//   steps.push_back(make_byte_level_decoder());
//   for (const auto& step : steps) step->run(tokens, matcher);     // then the tokens are joined
//
// Thread rule: steps are immutable; safe from many threads, each with its own tokens and matcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizers/pipeline/pattern.h"

namespace hasten::tokenizers {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void run(std::vector<std::string>& tokens, Matcher& matcher) const = 0;
};
using DecoderSteps = std::vector<std::unique_ptr<DecoderStep>>;

std::unique_ptr<DecoderStep> make_byte_level_decoder();
std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleans_up);
std::unique_ptr<DecoderStep> make_metaspace_decoder(char32_t replacement, bool drops_first);
std::unique_ptr<DecoderStep> make_bpe_decoder(std::string suffix);
std::unique_ptr<DecoderStep> make_byte_fallback_decoder();
std::unique_ptr<DecoderStep> make_fuse_decoder();
// Removes the character up to `left` times at the beginning and up to `right` times at the end of
// each token.
std::unique_ptr<DecoderStep> make_strip_decoder(char32_t character, std::size_t left,
                                                std::size_t right);
std::unique_ptr<DecoderStep> make_replace_decoder(std::string from, std::string to);
std::unique_ptr<DecoderStep> make_replace_decoder(Pattern from, std::string to);
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string word_delimiter,
                                              bool cleans_up);

}  // namespace hasten::tokenizers
