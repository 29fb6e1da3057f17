// File: models/beam_search.h (internal)
// Beam search without a model: selects the continuations of beams, and the sequences that are
// complete.
//
//   BeamSearch search(options, /*prompts=*/2, /*prompt_length=*/10, /*max_length=*/30);
//   search.begin(ids);
//   while (!search.is_finished()) search.advance(log_probabilities_of(search));
//   at::Tensor best = search.sequences();
//
// It makes the decisions of transformers' beam search (5.23, _beam_search in generation/utils.py),
// also in float. Each prompt has num_beams running beams and num_beams places for complete
// sequences. In a step, the best continuations of all beams of a prompt are the candidates. There
// are more candidates than beams, so that enough remain when some are complete.
//
// Slots: a beam's keys and values are in a row of the model's cache, its slot. If a beam has
// several continuations, the first keeps the slot, and the others get the slots of beams that
// ended. copies() lists the slots to copy.
//
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hasten/models/generation.h"

namespace hasten {

class BeamSearch {
 public:
  BeamSearch(const GenerationOptions& options, std::int64_t prompts, std::int64_t prompt_length,
             std::int64_t max_length);

  // Every beam begins with its prompt, ids [prompts, prompt length].
  void begin(const at::Tensor& ids);
  // The tokens of one beam of a prompt so far, and the slot of the beam.
  std::span<const std::int64_t> tokens(std::int64_t prompt, std::int64_t beam) const;
  std::int64_t slot(std::int64_t prompt, std::int64_t beam) const;

  // Takes the log probabilities of the next token: scores(prompt, beam) has one for each token of
  // the vocabulary.
  void advance(
      const std::function<std::span<const float>(std::int64_t prompt, std::int64_t beam)>& scores);
  // The pairs of slots (from, to) to copy after the last advance().
  const std::vector<std::pair<std::int64_t, std::int64_t>>& copies() const { return copies_; }
  bool is_finished() const { return is_finished_; }

  // The best complete sequences of each prompt [prompts * num_return_sequences, length], and their
  // scores [rows].
  at::Tensor sequences() const;
  at::Tensor scores() const;
  // The tensors that hold the beams.
  std::vector<at::Tensor> tensors() const { return {running_, next_, complete_, next_complete_}; }

 private:
  struct Candidate {
    float score;
    std::int64_t beam, token;
    bool is_final = false;
  };
  struct Running {
    float score;
    std::int64_t slot;
  };
  struct Complete {
    float score;
    bool is_set;
    std::int64_t length;
  };
  struct Prompt {
    std::vector<Running> running;
    std::vector<Complete> complete;
    bool can_improve = true;
  };

  std::vector<Candidate> best_candidates(
      std::int64_t prompt,
      const std::function<std::span<const float>(std::int64_t, std::int64_t)>& scores) const;
  bool is_final(std::int64_t token) const;
  void update_complete(std::int64_t prompt, const std::vector<Candidate>& candidates);
  void select_running(std::int64_t prompt, const std::vector<Candidate>& candidates);
  void check_improvement(Prompt& prompt) const;
  std::int64_t* row(const at::Tensor& tokens, std::int64_t prompt, std::int64_t beam) const;
  std::int64_t longest_complete() const;

  const GenerationOptions& options_;
  std::int64_t beams_, candidates_, prompt_length_, max_length_, length_;
  std::vector<Prompt> prompts_;
  // [prompts * num_beams, max_length] int64: the tokens of running beams and of complete sequences,
  // now and in the next step.
  at::Tensor running_, next_, complete_, next_complete_;
  std::vector<std::pair<std::int64_t, std::int64_t>> copies_;
  bool is_finished_ = false;
};

}  // namespace hasten
