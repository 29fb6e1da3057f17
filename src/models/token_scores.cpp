#include "models/token_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace hasten {
namespace {

// Makes the tokens of the text less probable, each once; padding is no part of the text.
void penalize_repetition(const TextSoFar& text, float penalty, std::span<float> scores) {
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

// Forbids each token with which the last tokens would become n tokens that the text has already.
void forbid_repeated(const TextSoFar& text, std::int64_t n, std::span<float> scores) {
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

// The tokens that are not forbidden, by falling score, and their probabilities.
struct Allowed {
  explicit Allowed(std::span<const float> scores) {
    for (std::size_t token = 0; token < scores.size(); ++token) {
      if (scores[token] != kForbidden) tokens.push_back(token);
    }
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    double sum = 0;
    for (const std::size_t token : tokens) {
      probabilities.push_back(std::exp(static_cast<double>(scores[token]) - scores[tokens[0]]));
      sum += probabilities.back();
    }
    for (double& each : probabilities) each /= sum;
  }

  std::vector<std::size_t> tokens;
  std::vector<double> probabilities;
};

// Forbids the least probable tokens as long as their probabilities sum to at most 1 - p.
void keep_top_p(double p, std::span<float> scores) {
  const Allowed allowed(scores);
  double left_out = 0;
  for (std::size_t i = allowed.tokens.size(); i-- > 1;) {
    left_out += allowed.probabilities[i];
    if (left_out > 1 - p) return;
    scores[allowed.tokens[i]] = kForbidden;
  }
}

void keep_min_p(double p, std::span<float> scores) {
  const Allowed allowed(scores);
  for (std::size_t i = 1; i < allowed.tokens.size(); ++i) {
    if (allowed.probabilities[i] < p * allowed.probabilities[0])
      scores[allowed.tokens[i]] = kForbidden;
  }
}

}  // namespace

void ScoreRules::apply(const TextSoFar& text, std::span<float> scores) const {
  if (options_.repetition_penalty != 1)
    penalize_repetition(text, static_cast<float>(options_.repetition_penalty), scores);
  if (options_.no_repeat_ngram_size > 0)
    forbid_repeated(text, options_.no_repeat_ngram_size, scores);
  forbid_end(text, scores);
  if (options_.do_sample) apply_sampling(scores);
}

void ScoreRules::forbid_end(const TextSoFar& text, std::span<float> scores) const {
  const std::int64_t length = std::ssize(text.tokens);
  if (length >= options_.min_length && length - prompt_length_ >= options_.min_new_tokens) return;
  for (const std::int64_t token : options_.eos_token_id) {
    if (token >= 0 && token < std::ssize(scores))
      scores[static_cast<std::size_t>(token)] = kForbidden;
  }
}

void ScoreRules::apply_sampling(std::span<float> scores) const {
  if (options_.temperature != 1) {
    for (float& score : scores) score /= static_cast<float>(options_.temperature);
  }
  if (options_.top_k > 0) keep_top_k(options_.top_k, scores);
  if (options_.top_p < 1) keep_top_p(options_.top_p, scores);
  if (options_.min_p) keep_min_p(*options_.min_p, scores);
}

}  // namespace hasten
