// `hasten generate`: continues texts with a decoder.
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/parse_number.h"
#include "commands/existing_paths.h"
#include "commands/generate_options.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/models/generation.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/tokenizers/tokenizer.h"
#include "torch_commands.h"

namespace hasten::cli {
namespace {

using Ids = std::vector<std::int32_t>;

std::int32_t id_of(const std::string& option, const std::string& text) {
  if (const auto id = parse_number<std::int32_t>(text); id && *id >= 0) return *id;
  throw ConfigError("config.bad-value",
                    {.what = option, .got = "'" + text + "'", .expected = "the id of a token"});
}

EarlyStopping early_stopping_of(EarlyStoppingChoice choice) {
  if (choice == EarlyStoppingChoice::yes) return EarlyStopping::yes;
  return choice == EarlyStoppingChoice::never ? EarlyStopping::never : EarlyStopping::no;
}

template <class To, class From>
void set_if_given(To& to, const std::optional<From>& from) {
  if (from) to = *from;
}

// Returns the model's options with the changes that the command asks for.
GenerationOptions options_of(const GenerateCommand& command) {
  GenerationOptions options = generation_defaults(command.model);
  // The model's files may set max_new_tokens, which would take precedence over max_length.
  if (command.max_length) options.max_new_tokens.reset();
  if (command.min_length) options.min_new_tokens = 0;
  set_if_given(options.max_length, command.max_length);
  set_if_given(options.max_new_tokens, command.max_new_tokens);
  set_if_given(options.min_length, command.min_length);
  set_if_given(options.min_new_tokens, command.min_new_tokens);
  set_if_given(options.num_beams, command.num_beams);
  set_if_given(options.num_return_sequences, command.num_return_sequences);
  set_if_given(options.length_penalty, command.length_penalty);
  if (command.early_stopping) options.early_stopping = early_stopping_of(*command.early_stopping);
  set_if_given(options.do_sample, command.do_sample);
  set_if_given(options.temperature, command.temperature);
  set_if_given(options.top_k, command.top_k);
  set_if_given(options.top_p, command.top_p);
  set_if_given(options.min_p, command.min_p);
  set_if_given(options.repetition_penalty, command.repetition_penalty);
  set_if_given(options.no_repeat_ngram_size, command.no_repeat_ngram_size);
  if (command.seed) options.seed = static_cast<std::uint64_t>(*command.seed);
  if (!command.eos_token_id.empty()) {
    options.eos_token_id.clear();
    for (const std::string& id : command.eos_token_id)
      options.eos_token_id.push_back(id_of("--eos_token_id", id));
  }
  set_if_given(options.pad_token_id, command.pad_token_id);
  check_generation(options);
  return options;
}

std::vector<std::string> texts_of(const GenerateCommand& command) {
  if (command.prompts.empty()) return command.prompt;
  std::vector<std::string> lines = split(read_file(command.prompts), '\n');
  for (std::string& line : lines) {
    if (ends_with(line, "\r")) line.pop_back();
  }
  std::erase(lines, "");
  if (!lines.empty()) return lines;
  throw DataError("data.empty",
                  {.what = command.prompts, .got = "no text", .expected = "a text on each line"});
}

struct Prompt {
  std::string text;  // empty if the prompt was given as ids
  Ids ids;
};

std::vector<Prompt> prompts_of(const GenerateCommand& command,
                               const std::optional<Tokenizer>& tokenizer) {
  std::vector<Prompt> prompts;
  if (!tokenizer) {
    Prompt& only = prompts.emplace_back();
    for (const std::string& id : command.ids) only.ids.push_back(id_of("--ids", id));
    return prompts;
  }
  for (std::string& text : texts_of(command)) {
    Ids ids = tokenizer->encode(text).input_ids;
    if (ids.empty()) {
      throw DataError("data.empty", {.what = "the prompt '" + text + "'",
                                     .got = "no token",
                                     .expected = "a text with at least one"});
    }
    prompts.push_back({std::move(text), std::move(ids)});
  }
  return prompts;
}

// Returns the ids and the mask of prompts as tensors [rows, longest], padded on the left.
std::pair<at::Tensor, at::Tensor> padded_batch(std::span<const Prompt> prompts,
                                               std::int64_t padding) {
  std::size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  const at::Tensor ids = at::full({std::ssize(prompts), static_cast<std::int64_t>(longest)},
                                  padding, at::kLong),
                   mask = at::zeros_like(ids);
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    const Ids& from = prompts[row].ids;
    const auto first = static_cast<std::int64_t>(longest * (row + 1) - from.size());
    std::copy(from.begin(), from.end(), ids.mutable_data_ptr<std::int64_t>() + first);
    std::fill_n(mask.mutable_data_ptr<std::int64_t>() + first, from.size(), 1);
  }
  return {ids, mask};
}

// A generated text: the ids of the prompt without padding, and the new ids up to and including the
// end token.
struct Result {
  const Prompt* prompt;
  Ids ids;
  std::optional<double> score;
};

std::vector<Result> results_of(std::span<const Prompt> prompts, const GenerationOutput& out,
                               const GenerationOptions& options, std::int64_t longest) {
  std::vector<Result> results;
  const std::int64_t rows = out.sequences.size(0), length = out.sequences.size(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Prompt& prompt = prompts[static_cast<std::size_t>(row / options.num_return_sequences)];
    Result& result = results.emplace_back(Result{.prompt = &prompt, .ids = {}, .score = {}});
    const std::int64_t* ids = out.sequences.const_data_ptr<std::int64_t>() + row * length;
    for (std::int64_t at = longest - std::ssize(prompt.ids); at < length; ++at) {
      result.ids.push_back(static_cast<std::int32_t>(ids[at]));
      const auto& ends = options.eos_token_id;
      if (at >= longest && std::find(ends.begin(), ends.end(), ids[at]) != ends.end()) break;
    }
    if (out.scores.defined()) result.score = out.scores[row].item<double>();
  }
  return results;
}

std::string text_of(const std::optional<Tokenizer>& tokenizer, const Ids& ids) {
  if (tokenizer) return tokenizer->decode(ids, {.skip_special_tokens = true});
  std::vector<std::string> numbers;
  for (const std::int32_t id : ids) numbers.push_back(std::to_string(id));
  return join(numbers, " ");
}

void print(const Result& result, const std::optional<Tokenizer>& tokenizer, bool as_json) {
  if (!as_json) {
    std::cout << text_of(tokenizer, result.ids) << '\n';
    return;
  }
  nlohmann::json line = {{"ids", result.ids}};
  if (tokenizer) {
    line["prompt"] = result.prompt->text;
    line["text"] = text_of(tokenizer, result.ids);
  }
  if (result.score) line["score"] = *result.score;
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

// Prints a text while it grows. An incomplete character is not printed until its last token
// arrives. Decodes only the tokens from the last printed piece on, so that the time grows linearly
// with the number of tokens. The last printed piece is included because some tokenizers decode the
// first token of a text differently.
class TextStreamer {
 public:
  TextStreamer(const Tokenizer& tokenizer, Ids prompt)
      : tokenizer_(tokenizer), ids_(std::move(prompt)) {}

  void add(std::int64_t id) {
    ids_.push_back(static_cast<std::int32_t>(id));
    constexpr std::string_view kIncomplete = "\xEF\xBF\xBD";
    const std::string text = decoded(ids_.size());
    if (!ends_with(text, kIncomplete)) show(text);
  }
  void finish() {
    show(decoded(ids_.size()));
    std::cout << '\n';
  }

 private:
  std::string decoded(std::size_t end) const {
    return tokenizer_.decode(std::span(ids_).subspan(printed_begin_, end - printed_begin_),
                             {.skip_special_tokens = true});
  }
  void show(const std::string& text) {
    const std::size_t shown = decoded(printed_end_).size();
    if (text.size() <= shown) return;  // true after a special token
    std::cout << text.substr(shown) << std::flush;
    printed_begin_ = printed_end_;
    printed_end_ = ids_.size();
  }

  const Tokenizer& tokenizer_;
  Ids ids_;
  std::size_t printed_begin_ = 0, printed_end_ = 0;  // the tokens of the last printed piece
};

// Warns about weights that do not come from the files: texts from random weights have no meaning.
void warn_of_random_weights(const LoadedModel& loaded, const std::string& model) {
  if (loaded.random) {
    std::cerr << "hasten generate: warning: the weights of " << model
              << " are random, so its texts have no meaning. Name a folder with weights.\n";
  } else if (!loaded.report.missing.empty()) {
    std::cerr << "hasten generate: warning: " << model << " has no "
              << join(loaded.report.missing, ", ")
              << ", so these weights are random and the texts have no meaning.\n";
  }
}

}  // namespace

int generate(int argc, char** argv) {
  const GenerateCommand command = parse_generate({argv + 2, argv + argc});
  check_model_exists(command.model);
  GenerationOptions options = options_of(command);
  std::optional<Tokenizer> tokenizer;
  if (command.ids.empty()) tokenizer = Tokenizer::from_pretrained(command.model);
  const std::vector<Prompt> prompts = prompts_of(command, tokenizer);
  const LoadedModel loaded = load_model(command.model, {.task = Task::causal_lm});
  warn_of_random_weights(loaded, command.model);
  loaded.model->eval();
  auto& model = dynamic_cast<CausalModel&>(*loaded.model);

  const bool streams = prompts.size() == 1 && tokenizer && !command.json &&
                       options.num_beams == 1 && options.num_return_sequences == 1;
  std::optional<TextStreamer> streamer;
  if (streams) {
    streamer.emplace(*tokenizer, prompts.front().ids);
    options.on_tokens = [&](const std::vector<std::int64_t>& next) { streamer->add(next.front()); };
  }
  // The batches share a generator: if each had its own, all would draw the same numbers.
  if (options.seed) torch::manual_seed(*options.seed);
  options.seed.reset();
  const auto batch = static_cast<std::size_t>(command.batch_size);
  for (std::size_t first = 0; first < prompts.size(); first += batch) {
    const auto part = std::span(prompts).subspan(first, std::min(batch, prompts.size() - first));
    const auto [ids, mask] = padded_batch(part, options.pad_token_id.value_or(0));
    const AutocastGuard autocast(command.bf16 ? Precision::bf16 : Precision::no, at::kCPU);
    const GenerationOutput out = hasten::generate(model, ids, mask, options);
    if (streams) break;
    for (const Result& result : results_of(part, out, options, ids.size(1)))
      print(result, tokenizer, command.json);
  }
  if (streamer) streamer->finish();
  return 0;
}

}  // namespace hasten::cli
