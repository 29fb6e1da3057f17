// File: hasten/models/generation.h
// Generates texts with a decoder: greedy search, sampling, and beam search.
//
//   LoadedModel loaded = load_model("gpt2", {.task = Task::causal_lm});
//   auto& model = dynamic_cast<CausalModel&>(*loaded.model);
//   loaded.model->eval();
//   GenerationOptions options{.max_new_tokens = 40, .num_beams = 5, .early_stopping = EarlyStopping::yes};
//   options.eos_token_id = {50256};
//   GenerationOutput out = generate(model, ids, attention_mask, options);
//   at::Tensor new_tokens = out.sequences.narrow(1, ids.size(1), out.sequences.size(1) - ids.size(1));
//
// Names, defaults and results match transformers' GenerationConfig and generate() (5.23): greedy
// and beam search give the same sequences token for token, and sampling with a seed gives the same
// sequences as transformers after torch.manual_seed with that seed. The only difference is the
// padding after the end of a beam's sequence if the padding token is 0: hasten pads with that
// token, and transformers with eos_token_id.
//
// Prompts of different lengths are padded at the left, so that the next token of each prompt is at
// the same position. Every step computes only the new tokens, with a cache of keys and values that
// is allocated once (KeyValueCache describes its memory). Logits are processed in float on the CPU.
//
// Throws ConfigError "generation.option" for options that are out of range or exclude each other,
// UsageError "generation.prompt" for prompts of the wrong shape, and UsageError
// "models.sequence-too-long". Thread rule: one thread at a time for a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/models/causal_model.h"
#include "hasten/options/detail/names.h"

namespace hasten {

// Selects when a beam search ends. `yes`: as soon as every beam has a complete sequence. `no`: when
// the best running beam, at its current length, is worse than the worst complete sequence. `never`:
// when that beam could not become better at any length.
enum class EarlyStopping { no, yes, never };

template <>
struct Names<EarlyStopping> {
  static constexpr std::string_view text[] = {"false", "true", "never"};
};

struct GenerationOptions {
  // The maximum number of tokens of a sequence with its prompt, and the maximum number of new
  // tokens, which takes precedence. If both are unset, the maximum is 20 new tokens, or fewer if
  // the model has no more positions.
  std::optional<std::int64_t> max_length = {}, max_new_tokens = {};
  // A sequence does not end before this many tokens with the prompt, or before this many new
  // tokens, which takes precedence if it is above 0.
  std::int64_t min_length = 0, min_new_tokens = 0;

  std::int64_t num_beams = 1;  // above 1: beam search
  double length_penalty = 1;   // a beam's score is divided by (new tokens)^length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;
  std::int64_t num_return_sequences = 1;  // for each prompt: samples, or the best beams

  bool do_sample = false;   // draws each token from its probability
  double temperature = 1;   // above 0; divides the logits
  std::int64_t top_k = 50;  // only the k most probable tokens; 0 means all
  // Only the smallest set of tokens with probabilities that sum to at least p. Among equally
  // probable tokens, those with the larger ids are kept.
  double top_p = 1;
  // Only tokens of at least this share of the highest probability.
  std::optional<double> min_p = {};
  // The seed of the samples. If unset, LibTorch's default CPU generator is used.
  std::optional<std::uint64_t> seed = {};

  double repetition_penalty = 1;          // above 0; above 1 makes tokens of the text less probable
  std::int64_t no_repeat_ngram_size = 0;  // no n tokens occur twice; 0 allows it

  std::vector<std::int64_t> eos_token_id = {};  // each of them ends a sequence
  // The token that pads a sequence after its end, which must be in the model's vocabulary. If
  // unset, it is the first of eos_token_id.
  std::optional<std::int64_t> pad_token_id = {};

  // Called after each step with the next token of each row. Not called in a beam search, because
  // its tokens may change until the end.
  std::function<void(const std::vector<std::int64_t>& next)> on_tokens = {};
  // Called with the memory of caches and beams whenever it has been allocated, for
  // Anatomy::watch_functionality.
  std::function<void(const std::vector<at::Tensor>& memory)> on_memory = {};
};

struct GenerationOutput {
  // [prompts * num_return_sequences, length] int64: the prompts as they were given, the new tokens,
  // and padding after the end.
  at::Tensor sequences;
  // The scores of a beam search [rows], the best of each prompt first; undefined without one.
  at::Tensor scores;
};

// Continues the prompts ids [rows, length] int64. attention_mask [rows, length] is zero for
// padding; undefined if there is none. The module must be in evaluation mode, and no gradients are
// recorded.
HASTEN_API GenerationOutput generate(CausalModel& model, const at::Tensor& ids,
                                     const at::Tensor& attention_mask,
                                     const GenerationOptions& options);

// Returns the options that a model's files set: eos_token_id and pad_token_id of config.json, and
// then the keys of generation_config.json, if the folder has this file. A key that is null gets its
// default, and a negative pad_token_id means none. `what` is the same as for load_model. Throws
// DataError "generation.config" for a key that changes texts and that hasten does not support.
HASTEN_API GenerationOptions generation_defaults(const std::string& what);

// Throws ConfigError "generation.option" for values that generate() refuses.
HASTEN_API void check_generation(const GenerationOptions& options);

}  // namespace hasten
