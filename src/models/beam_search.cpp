#include "models/beam_search.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/token_scores.h"

namespace hasten {
namespace {

// The same number as in transformers. It is the score of a position without a sequence, and it is
// added to a score that must not be chosen.
constexpr float kWorstScore = -1e9F;

// The token after the end of a sequence.
std::int64_t fill_token(const GenerationOptions& options) {
  if (options.pad_token_id) return *options.pad_token_id;
  return options.eos_token_id.empty() ? -1 : options.eos_token_id.front();
}

// Returns the indices of the `count` highest scores, highest first. Equal scores keep their order.
template <class ScoreOf>
std::vector<std::size_t> indices_of_best(std::size_t size, std::size_t count, ScoreOf score_of) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return score_of(a) > score_of(b); });
  order.resize(std::min(count, size));
  return order;
}

float with_length_penalty(float score, std::int64_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

}  // namespace

BeamSearch::BeamSearch(const GenerationOptions& options, std::int64_t prompts,
                       std::int64_t prompt_length, std::int64_t max_length)
    : options_(options),
      beams_(options.num_beams),
      candidates_(std::max<std::int64_t>(2, 1 + std::ssize(options.eos_token_id)) * beams_),
      prompt_length_(prompt_length),
      max_length_(max_length),
      length_(prompt_length),
      prompts_(static_cast<std::size_t>(prompts)) {
  const auto full = [&] {
    return at::full({prompts * beams_, max_length}, fill_token(options), at::kLong);
  };
  running_ = full();
  next_ = full();
  complete_ = full();
  next_complete_ = full();
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    for (std::int64_t beam = 0; beam < beams_; ++beam) {
      // All beams are equal at first, so only one of them can be continued.
      prompts_[prompt].running.push_back(
          {.score = beam == 0 ? 0 : kWorstScore,
           .slot = static_cast<std::int64_t>(prompt) * beams_ + beam});
      prompts_[prompt].complete.push_back({.score = kWorstScore, .is_set = false, .length = 0});
    }
  }
}

std::int64_t* BeamSearch::row(const at::Tensor& tokens, std::int64_t prompt,
                              std::int64_t beam) const {
  return tokens.mutable_data_ptr<std::int64_t>() + (prompt * beams_ + beam) * max_length_;
}

void BeamSearch::begin(const at::Tensor& ids) {
  const std::int64_t* from = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t prompt = 0; prompt < std::ssize(prompts_); ++prompt) {
    for (std::int64_t beam = 0; beam < beams_; ++beam) {
      for (const at::Tensor& tokens : {running_, complete_})
        std::copy_n(from + prompt * prompt_length_, prompt_length_, row(tokens, prompt, beam));
    }
  }
}

std::span<const std::int64_t> BeamSearch::tokens(std::int64_t prompt, std::int64_t beam) const {
  return {row(running_, prompt, beam), static_cast<std::size_t>(length_)};
}

std::int64_t BeamSearch::slot(std::int64_t prompt, std::int64_t beam) const {
  return prompts_[static_cast<std::size_t>(prompt)].running[static_cast<std::size_t>(beam)].slot;
}

bool BeamSearch::is_final(std::int64_t token) const {
  const auto& all = options_.eos_token_id;
  return length_ + 1 >= max_length_ || std::find(all.begin(), all.end(), token) != all.end();
}

// A heap keeps the best candidates while all continuations are read once. If scores are equal, the
// first beam and then the smallest token are better.
std::vector<BeamSearch::Candidate> BeamSearch::best_candidates(
    std::int64_t prompt,
    const std::function<std::span<const float>(std::int64_t, std::int64_t)>& scores) const {
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
  };
  std::vector<Candidate> heap;
  for (std::int64_t beam = 0; beam < beams_; ++beam) {
    const std::span<const float> next = scores(prompt, beam);
    const float before =
        prompts_[static_cast<std::size_t>(prompt)].running[static_cast<std::size_t>(beam)].score;
    for (std::size_t token = 0; token < next.size(); ++token) {
      const float sum = next[token] + before;
      const float score = std::isnan(sum) ? kForbidden : sum;  // a model that has diverged
      const bool is_full = std::ssize(heap) == candidates_;
      if (is_full && !(score > heap.front().score)) continue;
      if (is_full) {
        std::pop_heap(heap.begin(), heap.end(), better);
        heap.pop_back();
      }
      heap.push_back({score, beam, static_cast<std::int64_t>(token)});
      std::push_heap(heap.begin(), heap.end(), better);
    }
  }
  std::sort(heap.begin(), heap.end(), better);
  for (Candidate& each : heap) each.is_final = is_final(each.token);
  return heap;
}

void BeamSearch::advance(
    const std::function<std::span<const float>(std::int64_t, std::int64_t)>& scores) {
  copies_.clear();
  bool any_continues = false;
  for (std::int64_t prompt = 0; prompt < std::ssize(prompts_); ++prompt) {
    const std::vector<Candidate> candidates = best_candidates(prompt, scores);
    for (const Candidate& each : candidates) any_continues = any_continues || !each.is_final;
    update_complete(prompt, candidates);
    select_running(prompt, candidates);
  }
  std::swap(running_, next_);
  std::swap(complete_, next_complete_);
  ++length_;
  bool any_improves = false, all_complete = true;
  for (Prompt& prompt : prompts_) {
    check_improvement(prompt);
    any_improves = any_improves || prompt.can_improve;
    for (const Complete& each : prompt.complete) all_complete = all_complete && each.is_set;
  }
  const bool has_enough = all_complete && options_.early_stopping == EarlyStopping::yes;
  is_finished_ = !any_improves || has_enough || !any_continues;
}

// Keeps the best of the earlier complete sequences and the candidates that end now. Only the first
// num_beams candidates may end; the others are a reserve for the next beams.
void BeamSearch::update_complete(std::int64_t prompt, const std::vector<Candidate>& candidates) {
  Prompt& own = prompts_[static_cast<std::size_t>(prompt)];
  std::vector<Complete> merged = own.complete;
  const bool is_full = std::all_of(own.complete.begin(), own.complete.end(),
                                   [](const Complete& each) { return each.is_set; });
  const bool is_closed =
      !own.can_improve || (is_full && options_.early_stopping == EarlyStopping::yes);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool is_final = candidates[i].is_final && static_cast<std::int64_t>(i) < beams_;
    float score = with_length_penalty(candidates[i].score, length_ + 1 - prompt_length_,
                                      options_.length_penalty);
    if (is_closed) score += kWorstScore;
    if (!is_final) score += kWorstScore;
    merged.push_back({.score = score, .is_set = is_final, .length = length_ + 1});
  }
  const auto best = indices_of_best(merged.size(), static_cast<std::size_t>(beams_),
                                    [&](std::size_t i) { return merged[i].score; });
  for (std::int64_t position = 0; position < beams_; ++position) {
    const std::size_t from = best[static_cast<std::size_t>(position)];
    std::int64_t* const to = row(next_complete_, prompt, position);
    if (from < static_cast<std::size_t>(beams_)) {
      std::copy_n(row(complete_, prompt, static_cast<std::int64_t>(from)), max_length_, to);
    } else {
      const Candidate& candidate = candidates[from - static_cast<std::size_t>(beams_)];
      std::copy_n(row(running_, prompt, candidate.beam), length_, to);
      to[length_] = candidate.token;
      std::fill(to + length_ + 1, to + max_length_, fill_token(options_));
    }
    own.complete[static_cast<std::size_t>(position)] = merged[from];
  }
}

// The best candidates that do not end are the next beams.
void BeamSearch::select_running(std::int64_t prompt, const std::vector<Candidate>& candidates) {
  Prompt& own = prompts_[static_cast<std::size_t>(prompt)];
  const auto score_of = [&](std::size_t i) {
    return candidates[i].score + (candidates[i].is_final ? kWorstScore : 0);
  };
  const auto best = indices_of_best(candidates.size(), static_cast<std::size_t>(beams_), score_of);
  const std::vector<Running> before = own.running;
  std::vector<bool> is_taken(before.size(), false);
  std::vector<std::size_t> without_slot;
  for (std::size_t position = 0; position < best.size(); ++position) {
    const Candidate& candidate = candidates[best[position]];
    const auto beam = static_cast<std::size_t>(candidate.beam);
    std::int64_t* const to = row(next_, prompt, static_cast<std::int64_t>(position));
    std::copy_n(row(running_, prompt, candidate.beam), length_, to);
    to[length_] = candidate.token;
    own.running[position] = {.score = score_of(best[position]), .slot = before[beam].slot};
    if (is_taken[beam]) without_slot.push_back(position);
    is_taken[beam] = true;
  }
  for (std::size_t beam = 0, next = 0; next < without_slot.size(); ++beam) {
    if (is_taken[beam]) continue;
    Running& running = own.running[without_slot[next++]];
    copies_.emplace_back(running.slot, before[beam].slot);
    running.slot = before[beam].slot;
  }
}

void BeamSearch::check_improvement(Prompt& prompt) const {
  const std::int64_t length =
      options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0
          ? max_length_ - prompt_length_
          : length_ - prompt_length_;
  const float possible =
      with_length_penalty(prompt.running.front().score, length, options_.length_penalty);
  float worst = prompt.complete.front().score;
  for (const Complete& each : prompt.complete) worst = std::min(worst, each.score);
  const bool any = std::any_of(
      prompt.complete.begin(), prompt.complete.end(),
      [&](const Complete& each) { return possible > (each.is_set ? worst : kWorstScore); });
  prompt.can_improve = prompt.can_improve && any;
}

std::int64_t BeamSearch::longest_complete() const {
  std::int64_t longest = prompt_length_;
  for (const Prompt& prompt : prompts_) {
    for (std::int64_t i = 0; i < options_.num_return_sequences; ++i)
      longest = std::max(longest, prompt.complete[static_cast<std::size_t>(i)].length);
  }
  return longest;
}

at::Tensor BeamSearch::sequences() const {
  const auto count = static_cast<std::int64_t>(prompts_.size());
  return complete_.view({count, beams_, max_length_})
      .narrow(1, 0, options_.num_return_sequences)
      .reshape({count * options_.num_return_sequences, max_length_})
      .narrow(1, 0, longest_complete())
      .contiguous();
}

at::Tensor BeamSearch::scores() const {
  const at::Tensor out =
      at::empty({std::ssize(prompts_) * options_.num_return_sequences}, at::kFloat);
  float* to = out.mutable_data_ptr<float>();
  for (const Prompt& prompt : prompts_) {
    for (std::int64_t i = 0; i < options_.num_return_sequences; ++i)
      *to++ = prompt.complete[static_cast<std::size_t>(i)].score;
  }
  return out;
}

}  // namespace hasten
