#include "hasten/models/generation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "models/beam_search.h"
#include "models/token_scores.h"

namespace hasten {
namespace {

[[noreturn]] void throw_option(const char* name, std::string got, std::string expected,
                               std::string hint = "") {
  throw ConfigError("generation.option", {.what = name,
                                          .got = std::move(got),
                                          .expected = std::move(expected),
                                          .hint = std::move(hint)});
}

void check_at_least(const char* name, std::int64_t value, std::int64_t minimum) {
  if (value < minimum) throw_option(name, str(value), str(minimum, " or more"));
}

void check_max_tokens(const char* name, const std::optional<std::int64_t>& tokens) {
  // Sums and sizes of memory must not overflow.
  constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();
  if (tokens && (*tokens < 1 || *tokens > kMaxTokens))
    throw_option(name, str(*tokens), str("1 to ", kMaxTokens));
}

void check_lengths(const GenerationOptions& options) {
  check_max_tokens("max_length", options.max_length);
  check_max_tokens("max_new_tokens", options.max_new_tokens);
  check_at_least("min_length", options.min_length, 0);
  check_at_least("min_new_tokens", options.min_new_tokens, 0);
  if (options.max_new_tokens && options.min_new_tokens > *options.max_new_tokens) {
    throw_option("min_new_tokens", str(options.min_new_tokens),
                 str("at most max_new_tokens (", *options.max_new_tokens, ")"));
  }
}

void check_filters(const GenerationOptions& options) {
  if (!(options.temperature > 0)) {
    throw_option("temperature", str(options.temperature), "above 0",
                 "leave out do_sample to take the most probable token");
  }
  check_at_least("top_k", options.top_k, 0);
  if (!(options.top_p >= 0 && options.top_p <= 1))
    throw_option("top_p", str(options.top_p), "0 to 1");
  if (options.min_p && !(*options.min_p >= 0 && *options.min_p <= 1))
    throw_option("min_p", str(*options.min_p), "0 to 1");
  if (!(options.repetition_penalty > 0))
    throw_option("repetition_penalty", str(options.repetition_penalty), "above 0");
  check_at_least("no_repeat_ngram_size", options.no_repeat_ngram_size, 0);
}

void check_search(const GenerationOptions& options) {
  check_at_least("num_beams", options.num_beams, 1);
  check_at_least("num_return_sequences", options.num_return_sequences, 1);
  const bool searches = options.num_beams > 1;
  if (searches && options.do_sample) {
    throw_option("do_sample", str("true, with ", options.num_beams, " beams"), "one of them",
                 "a beam search draws no samples");
  }
  if (searches && options.num_return_sequences > options.num_beams) {
    throw_option("num_return_sequences", str(options.num_return_sequences),
                 str("at most num_beams (", options.num_beams, ")"));
  }
  if (!searches && !options.do_sample && options.num_return_sequences > 1) {
    throw_option("num_return_sequences", str(options.num_return_sequences), "1",
                 "the most probable tokens are the same each time; set do_sample or num_beams");
  }
  if (searches && options.on_tokens) {
    throw_option("on_tokens", str("a function, with ", options.num_beams, " beams"), "one of them",
                 "the tokens of a beam search may change until its end");
  }
  if (!std::isfinite(options.length_penalty))
    throw_option("length_penalty", str(options.length_penalty), "a number");
  if (options.pad_token_id) check_at_least("pad_token_id", *options.pad_token_id, 0);
}

void check_prompts(const at::Tensor& ids, const at::Tensor& mask) {
  const bool fits = ids.defined() && ids.dim() == 2 && ids.size(0) > 0 && ids.size(1) > 0 &&
                    (ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt);
  if (!fits) {
    throw UsageError(
        "generation.prompt",
        {.what = "the ids of prompts",
         .got = ids.defined() ? str(c10::toString(ids.scalar_type()), " ", shape_text(ids.sizes()))
                              : "none",
         .expected = "[rows, tokens] int64, at least one of each"});
  }
  if (mask.defined() && mask.sizes() != ids.sizes()) {
    throw UsageError("generation.prompt", {.what = "the attention_mask of prompts",
                                           .got = "shape " + shape_text(mask.sizes()),
                                           .expected = shape_text(ids.sizes())});
  }
}

// Returns the number of padding tokens at the beginning of each prompt. Padding at the end would
// separate a prompt from its continuation.
std::vector<std::int64_t> padding_of(const at::Tensor& ids, const at::Tensor& mask) {
  std::vector<std::int64_t> padding(static_cast<std::size_t>(ids.size(0)), 0);
  if (!mask.defined()) return padding;
  const at::Tensor counts = mask.ne(0).to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* count = counts.const_data_ptr<std::int64_t>();
  const std::int64_t length = ids.size(1);
  for (std::size_t row = 0; row < padding.size(); ++row, count += length) {
    padding[row] =
        std::find_if(count, count + length, [](std::int64_t each) { return each != 0; }) - count;
    if (count[length - 1] != 0) continue;
    throw UsageError("generation.prompt", {.what = str("the attention_mask of prompts, row ", row),
                                           .got = "padding at the end",
                                           .expected = "padding at the beginning only",
                                           .hint = "pad prompts at the left"});
  }
  return padding;
}

std::int64_t max_length_of(const GenerationOptions& options, std::int64_t prompt,
                           const CausalModel& model) {
  constexpr std::int64_t kDefaultNewTokens = 20;
  const std::int64_t limit =
      model.max_length() > 0 ? model.max_length() : std::numeric_limits<std::int64_t>::max();
  // As in transformers, only the default is limited to the longest row of the model.
  const std::int64_t default_length =
      std::max(prompt + 1, std::min(prompt + kDefaultNewTokens, limit));
  const std::int64_t max_length = options.max_new_tokens
                                      ? prompt + *options.max_new_tokens
                                      : options.max_length.value_or(default_length);
  if (max_length <= prompt) {
    throw_option("max_length", str(max_length),
                 str("more than the ", prompt, " tokens of the prompts"),
                 "set max_new_tokens instead");
  }
  if (max_length > limit) {
    throw UsageError("models.sequence-too-long",
                     {.what = "a generation",
                      .got = str(max_length, " tokens with the prompt"),
                      .expected = str("at most ", limit, " (max_position_embeddings)"),
                      .hint = "set a smaller max_new_tokens, or shorten the prompts"});
  }
  return max_length;
}

// The model reads padding for texts that have ended while other texts continue.
void check_padding(const GenerationOptions& options, std::int64_t vocabulary) {
  if (!options.pad_token_id || *options.pad_token_id < vocabulary) return;
  throw_option("pad_token_id", str(*options.pad_token_id), str("0 to ", vocabulary - 1),
               "set the id of a token of the model");
}

// The prompts, their cache and the scores of the next tokens, for every kind of search.
class Decoding {
 public:
  Decoding(CausalModel& model, const at::Tensor& ids, const at::Tensor& mask,
           const GenerationOptions& options, std::int64_t copies)
      : model_(model),
        options_(options),
        prompts_(ids.to(at::kLong).contiguous()),
        padding_(padding_of(ids, mask)),
        prompt_length_(ids.size(1)),
        max_length_(max_length_of(options, prompt_length_, model)),
        copies_(copies),
        device_(ids.device()),
        cache_(model.cache_shape(),
               {.rows = ids.size(0), .capacity = max_length_, .copies = copies}),
        logits_processor_(options, prompt_length_) {
    cache_.set_prompt(mask);
  }

  std::int64_t prompts() const { return prompts_.size(0); }
  std::int64_t rows() const { return prompts() * copies_; }
  std::int64_t prompt_length() const { return prompt_length_; }
  std::int64_t max_length() const { return max_length_; }
  at::Tensor prompt_ids() const { return prompts_.cpu(); }
  KeyValueCache& cache() { return cache_; }

  // Reads the prompts, and returns the scores for the token after each [prompts, vocabulary].
  at::Tensor read_prompts() {
    at::Tensor scores = next_scores(prompts_);
    check_padding(options_, scores.size(1));
    cache_.expand();
    return scores;
  }
  // Reads a token of each row, and returns the scores for the next one.
  at::Tensor read(const std::vector<std::int64_t>& tokens) {
    at::Tensor ids = at::empty({std::ssize(tokens), 1}, at::kLong);
    std::copy(tokens.begin(), tokens.end(), ids.mutable_data_ptr<std::int64_t>());
    return next_scores(ids.to(device_));
  }

  // Applies the rules to the scores of a row.
  void process_scores(std::int64_t row, std::span<const std::int64_t> tokens,
                      std::span<float> scores) const {
    logits_processor_.apply(
        {.tokens = tokens, .padding = padding_[static_cast<std::size_t>(row / copies_)]}, scores);
  }

  void report_memory(std::vector<at::Tensor> tensors) const {
    if (!options_.on_memory) return;
    const std::vector<at::Tensor> own = cache_.tensors();
    tensors.insert(tensors.end(), own.begin(), own.end());
    options_.on_memory(tensors);
  }

 private:
  // The result is a copy that may be changed. Its rows are contiguous whatever the model returns.
  at::Tensor next_scores(const at::Tensor& ids) {
    const at::Tensor logits = model_.next_logits(ids, cache_);
    cache_.advance(ids.size(1));
    return logits.to(at::TensorOptions(at::kCPU).dtype(at::kFloat), /*non_blocking=*/false,
                     /*copy=*/true, at::MemoryFormat::Contiguous);
  }

  CausalModel& model_;
  const GenerationOptions& options_;
  at::Tensor prompts_;
  std::vector<std::int64_t> padding_;
  std::int64_t prompt_length_, max_length_, copies_;
  at::Device device_;
  KeyValueCache cache_;
  LogitsProcessor logits_processor_;
};

std::span<float> row_of(const at::Tensor& scores, std::int64_t row) {
  const std::int64_t columns = scores.size(1);
  return {scores.mutable_data_ptr<float>() + row * columns, static_cast<std::size_t>(columns)};
}

// Chooses the next token of each row: the most probable, or a sample.
class TokenSelector {
 public:
  explicit TokenSelector(const GenerationOptions& options) : samples_(options.do_sample) {
    if (options.seed) generator_ = at::make_generator<at::CPUGeneratorImpl>(*options.seed);
  }

  std::vector<std::int64_t> choose(const at::Tensor& scores) const {
    const at::Tensor chosen = samples_
                                  ? at::multinomial(at::softmax(scores, -1), 1, false, generator_)
                                  : scores.argmax(-1);
    const std::int64_t* first = chosen.const_data_ptr<std::int64_t>();
    return {first, first + chosen.numel()};
  }

 private:
  bool samples_;
  std::optional<at::Generator> generator_;
};

// Greedy search, or sampling.
GenerationOutput select_tokens(CausalModel& model, const at::Tensor& ids, const at::Tensor& mask,
                               const GenerationOptions& options) {
  const std::int64_t copies = options.num_return_sequences;
  Decoding decoding(model, ids, mask, options, copies);
  const std::int64_t rows = decoding.rows();
  const auto& ends = options.eos_token_id;
  const std::int64_t padding = options.pad_token_id.value_or(ends.empty() ? 0 : ends.front());
  const TokenSelector choice(options);
  const at::Tensor texts = at::full({rows, decoding.max_length()}, padding, at::kLong);
  texts.narrow(1, 0, decoding.prompt_length())
      .copy_(decoding.prompt_ids().repeat_interleave(copies, 0));
  const auto text = [&](std::int64_t row) {
    return texts.mutable_data_ptr<std::int64_t>() + row * decoding.max_length();
  };
  std::vector<bool> is_finished(static_cast<std::size_t>(rows), false);
  std::int64_t length = decoding.prompt_length();
  at::Tensor scores = decoding.read_prompts();
  if (copies > 1) scores = scores.repeat_interleave(copies, 0);
  decoding.report_memory({texts});
  while (true) {
    for (std::int64_t row = 0; row < rows; ++row) {
      decoding.process_scores(row, {text(row), static_cast<std::size_t>(length)},
                              row_of(scores, row));
    }
    std::vector<std::int64_t> next = choice.choose(scores);
    for (std::size_t row = 0; row < next.size(); ++row) {
      if (is_finished[row]) next[row] = padding;
      text(static_cast<std::int64_t>(row))[length] = next[row];
      is_finished[row] =
          is_finished[row] || std::find(ends.begin(), ends.end(), next[row]) != ends.end();
    }
    ++length;
    if (options.on_tokens) options.on_tokens(next);
    const bool all_finished =
        std::find(is_finished.begin(), is_finished.end(), false) == is_finished.end();
    if (all_finished || length == decoding.max_length()) break;
    scores = decoding.read(next);
  }
  return {.sequences = texts.narrow(1, 0, length).contiguous(), .scores = {}};
}

// Throws if the vocabulary has too few tokens for the distinct candidates of a step.
void check_vocabulary(const at::Tensor& scores, const GenerationOptions& options) {
  const std::int64_t minimum = std::max<std::int64_t>(2, 1 + std::ssize(options.eos_token_id));
  if (scores.size(1) >= minimum) return;
  throw_option("num_beams", str(options.num_beams, ", for a vocabulary of ", scores.size(1)),
               str("a vocabulary of ", minimum, " or more"));
}

GenerationOutput search_beams(CausalModel& model, const at::Tensor& ids, const at::Tensor& mask,
                              const GenerationOptions& options) {
  const std::int64_t beams = options.num_beams;
  Decoding decoding(model, ids, mask, options, beams);
  BeamSearch search(options, decoding.prompts(), decoding.prompt_length(), decoding.max_length());
  search.begin(decoding.prompt_ids());
  at::Tensor scores = at::log_softmax(decoding.read_prompts(), -1).repeat_interleave(beams, 0);
  check_vocabulary(scores, options);
  decoding.report_memory(search.tensors());
  while (true) {
    for (std::int64_t prompt = 0; prompt < decoding.prompts(); ++prompt) {
      for (std::int64_t beam = 0; beam < beams; ++beam) {
        decoding.process_scores(prompt * beams, search.tokens(prompt, beam),
                                row_of(scores, search.slot(prompt, beam)));
      }
    }
    search.advance([&](std::int64_t prompt, std::int64_t beam) -> std::span<const float> {
      return row_of(scores, search.slot(prompt, beam));
    });
    if (search.is_finished()) break;
    for (const auto& [from, to] : search.copies()) decoding.cache().copy_row(from, to);
    std::vector<std::int64_t> next(static_cast<std::size_t>(decoding.rows()));
    for (std::int64_t prompt = 0; prompt < decoding.prompts(); ++prompt) {
      for (std::int64_t beam = 0; beam < beams; ++beam)
        next[static_cast<std::size_t>(search.slot(prompt, beam))] =
            search.tokens(prompt, beam).back();
    }
    scores = at::log_softmax(decoding.read(next), -1);
  }
  return {.sequences = search.sequences(), .scores = search.scores()};
}

}  // namespace

void check_generation(const GenerationOptions& options) {
  check_lengths(options);
  check_filters(options);
  check_search(options);
}

GenerationOutput generate(CausalModel& model, const at::Tensor& ids,
                          const at::Tensor& attention_mask, const GenerationOptions& options) {
  check_generation(options);
  check_prompts(ids, attention_mask);
  const torch::NoGradGuard no_grad;
  return options.num_beams > 1 ? search_beams(model, ids, attention_mask, options)
                               : select_tokens(model, ids, attention_mask, options);
}

}  // namespace hasten
