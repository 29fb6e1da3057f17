#include "models/token_scores.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace hasten {
namespace {

// Makes the tokens of the text less probable, each once; padding is not a part of the text.
void penalize_repetition(const TokenSequence& text, float penalty, std::span<float> scores) {
  const auto of_text = text.tokens.subspan(static_cast<std::size_t>(text.padding));
  std::vector<std::int64_t> tokens(of_text.begin(), of_text.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= std::ssize(scores)) continue;
    float& score = scores[static_cast<std::size_t>(token)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

// Forbids each token that would complete a sequence of n tokens that the text already has.
void forbid_repeated_ngrams(const TokenSequence& text, std::int64_t n, std::span<float> scores) {
  const auto& tokens = text.tokens;
  if (std::ssize(tokens) < n) return;
  const auto before = static_cast<std::size_t>(n - 1);
  const auto last = tokens.last(before);
  for (std::size_t at = 0; at + before < tokens.size(); ++at) {
    if (!std::equal(last.begin(), last.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at)))
      continue;
    const std::int64_t next = tokens[at + before];
    if (next >= 0 && next < std::ssize(scores)) scores[static_cast<std::size_t>(next)] = kForbidden;
  }
}

void keep_top_k(std::int64_t k, std::span<float> scores) {
  if (k >= std::ssize(scores)) return;
  std::vector<float> sorted(scores.begin(), scores.end());
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  for (float& score : scores) score = score < *last ? kForbidden : score;
}

// Returns a tensor on the memory of the scores. The filters of probabilities use the operators of
// transformers, and compare floats as it does, because equal probabilities are often at a limit.
at::Tensor tensor_on(std::span<float> scores) {
  return at::from_blob(scores.data(), {std::ssize(scores)}, at::kFloat);
}

// Forbids the least probable tokens as long as their probabilities sum to at most 1 - p. The most
// probable one stays.
void keep_top_p(double p, std::span<float> scores) {
  const auto [sorted, order] =
      at::sort(tensor_on(scores), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor sums = at::cumsum(at::softmax(sorted, 0), 0);
  const float* const sum = sums.const_data_ptr<float>();
  const std::int64_t* const token = order.const_data_ptr<std::int64_t>();
  const auto max_sum = static_cast<float>(1 - p);
  for (std::size_t i = 0; i + 1 < scores.size() && sum[i] <= max_sum; ++i)
    scores[static_cast<std::size_t>(token[i])] = kForbidden;
}

// Forbids the tokens with probabilities below p times the highest one.
void keep_min_p(double p, std::span<float> scores) {
  const at::Tensor probabilities = at::softmax(tensor_on(scores), 0);
  const float* const probability = probabilities.const_data_ptr<float>();
  const float min_probability =
      static_cast<float>(p) * *std::max_element(probability, probability + scores.size());
  for (std::size_t token = 0; token < scores.size(); ++token) {
    if (probability[token] < min_probability) scores[token] = kForbidden;
  }
}

}  // namespace

void LogitsProcessor::apply(const TokenSequence& text, std::span<float> scores) const {
  if (options_.repetition_penalty != 1)
    penalize_repetition(text, static_cast<float>(options_.repetition_penalty), scores);
  if (options_.no_repeat_ngram_size > 0)
    forbid_repeated_ngrams(text, options_.no_repeat_ngram_size, scores);
  forbid_end(text, scores);
  if (options_.do_sample) apply_sampling(scores);
}

void LogitsProcessor::forbid_end(const TokenSequence& text, std::span<float> scores) const {
  const std::int64_t min_length =
      options_.min_new_tokens > 0 ? prompt_length_ + options_.min_new_tokens : options_.min_length;
  if (std::ssize(text.tokens) >= min_length) return;
  for (const std::int64_t token : options_.eos_token_id) {
    if (token >= 0 && token < std::ssize(scores))
      scores[static_cast<std::size_t>(token)] = kForbidden;
  }
}

void LogitsProcessor::apply_sampling(std::span<float> scores) const {
  if (options_.temperature != 1) {
    for (float& score : scores) score /= static_cast<float>(options_.temperature);
  }
  if (options_.top_k > 0) keep_top_k(options_.top_k, scores);
  if (options_.top_p < 1) keep_top_p(options_.top_p, scores);
  if (options_.min_p) keep_min_p(*options_.min_p, scores);
}

}  // namespace hasten
