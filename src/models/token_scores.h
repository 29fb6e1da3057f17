// File: models/token_scores.h (internal)
// Changes the scores of the next token, as the logits processors of transformers do, in their
// order: penalties and forbidden tokens for every search, and filters for sampling.
//
//   const LogitsProcessor processor(options, /*prompt_length=*/10);
//   processor.apply({.tokens = {row, row + 12}, .padding = 2}, scores);   // -infinity: forbidden
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "hasten/models/generation.h"

namespace hasten {

// The score of a token that must not be next.
inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The text before the next token, with its prompt and the padding before it.
struct TokenSequence {
  std::span<const std::int64_t> tokens;
  std::int64_t padding = 0;  // how many of the first tokens are padding
};

class LogitsProcessor {
 public:
  LogitsProcessor(const GenerationOptions& options, std::int64_t prompt_length)
      : options_(options), prompt_length_(prompt_length) {}

  // Applies all rules to the logits, or log probabilities, of one row.
  void apply(const TokenSequence& text, std::span<float> scores) const;

 private:
  void forbid_end(const TokenSequence& text, std::span<float> scores) const;
  void apply_sampling(std::span<float> scores) const;

  const GenerationOptions& options_;
  std::int64_t prompt_length_;
};

}  // namespace hasten
