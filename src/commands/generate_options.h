// File: commands/generate_options.h (internal)
// The options of `hasten generate`.
//
//   const GenerateCommand run = parse_generate({argv + 2, argv + argc});
//   run.prompt;        // the texts to continue
//
// Options of the search have the names of GenerationOptions (hasten/models/generation.h). Unset
// options have the values in the model's generation_config.json. Needs no torch. Throws ConfigError
// "config.*". Thread rule: values and a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/names.h"

namespace hasten {

// EarlyStopping of hasten/models/generation.h, with the names of transformers.
enum class EarlyStoppingChoice { no, yes, never };
template <>
struct Names<EarlyStoppingChoice> {
  static constexpr std::string_view text[] = {"false", "true", "never"};
};

struct GenerateCommand {
  bool help = false;
  std::string model;
  std::vector<std::string> prompt;  // texts
  std::string prompts;              // a file with a text on each line
  std::vector<std::string> ids;     // one prompt of ids, for a model without a tokenizer
  std::int64_t batch_size = 8;
  bool json = false;
  bool bf16 = false;

  std::optional<std::int64_t> max_length, max_new_tokens, min_length, min_new_tokens;
  std::optional<std::int64_t> num_beams, num_return_sequences;
  std::optional<double> length_penalty;
  std::optional<EarlyStoppingChoice> early_stopping;
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k, no_repeat_ngram_size, seed;
  std::vector<std::string> eos_token_id;  // ids
  std::optional<std::int64_t> pad_token_id;
};

// Parses the arguments after `generate`.
HASTEN_INTERNAL_API GenerateCommand parse_generate(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string generate_help(int width);

}  // namespace hasten
