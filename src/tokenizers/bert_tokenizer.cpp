#include "hasten/tokenizers/bert_tokenizer.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "state.h"
#include "text_encoder.h"

namespace hasten {
namespace {

using tokenizers::TextEncoder;
using tokenizers::TextTokens;
using State = BertTokenizer::State;

// Checks the options and fills in the tokenizer's defaults.
EncodeOptions resolved(const State& state, EncodeOptions options, bool is_pair) {
  if (options.max_length < 0) {
    throw UsageError("tokenizers.bad-max-length",
                     {.what = "EncodeOptions::max_length",
                      .got = str(options.max_length),
                      .expected = "a positive number, or 0 for the model's limit"});
  }
  if (options.truncation == Truncation::none) return options;
  if (!options.truncation_side) options.truncation_side = state.options.truncation_side;
  if (options.max_length == 0) options.max_length = state.options.model_max_length;
  if (options.max_length == 0) {
    throw UsageError(
        "tokenizers.bad-max-length",
        {.what =
             "truncation without a length: neither the options nor the tokenizer's files set one",
         .hint = "set EncodeOptions::max_length"});
  }
  const auto specials =
      options.add_special_tokens ? tokenizers::special_count(state.templates.for_pair(is_pair)) : 0;
  if (options.max_length < static_cast<std::int64_t>(specials)) {
    throw UsageError("tokenizers.bad-max-length",
                     {.what = "EncodeOptions::max_length, which must include the special tokens",
                      .got = str(options.max_length),
                      .expected = str("at least ", specials)});
  }
  if (options.truncation == Truncation::only_second && !is_pair)
    throw UsageError("tokenizers.no-second-text",
                     {.what = "Truncation::only_second, but there is only one text"});
  return options;
}

// Encodes one row after another and reuses its buffers.
class RowEncoder {
 public:
  RowEncoder(const State& state, const EncodeOptions& options, bool is_pair)
      : state_(state),
        options_(resolved(state, options, is_pair)),
        encoder_(state, options.offsets) {}

  Encoding encode(std::string_view text) {
    encoder_.run(text, enough_tokens(), first_);
    return tokenizers::assemble(state_.templates, first_, nullptr, options_);
  }
  // The options must ask for offsets.
  Encoding encode_words(std::span<const std::string> words) {
    first_.clear();
    for (std::size_t i = 0; i < words.size() && first_.ids.size() < enough_tokens(); ++i) {
      encoder_.run(words[i], kUnlimited, second_);
      first_.ids.insert(first_.ids.end(), second_.ids.begin(), second_.ids.end());
      first_.offsets.insert(first_.offsets.end(), second_.offsets.begin(), second_.offsets.end());
      first_.words.resize(first_.ids.size(), static_cast<std::int32_t>(i));
    }
    return tokenizers::assemble(state_.templates, first_, nullptr, options_);
  }
  Encoding encode(std::string_view text, std::string_view pair) {
    encoder_.run(text, kUnlimited, first_);
    encoder_.run(pair, kUnlimited, second_);
    return tokenizers::assemble(state_.templates, first_, &second_, options_);
  }

 private:
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  // A single text that is cut at its end needs no tokens beyond the cut.
  std::size_t enough_tokens() const {
    const bool cut =
        options_.truncation != Truncation::none && options_.truncation_side != Side::left;
    return cut ? static_cast<std::size_t>(options_.max_length) : kUnlimited;
  }

  const State& state_;
  const EncodeOptions options_;
  TextEncoder encoder_;
  TextTokens first_;
  TextTokens second_;
};

// Calls work(from, to) for parts of [0, count), each on its own thread, and rethrows the first
// part's exception.
template <class Work>
void parallel_for(std::size_t count, int threads, Work work) {
  if (threads < 1)
    throw UsageError(
        "tokenizers.bad-threads",
        {.what = "the number of threads", .got = str(threads), .expected = "at least 1"});
  const std::size_t parts = std::min(count, static_cast<std::size_t>(threads));
  if (parts <= 1) return work(std::size_t{0}, count);
  std::vector<std::exception_ptr> errors(parts);
  {
    std::vector<std::jthread> workers;
    for (std::size_t part = 0; part < parts; ++part) {
      workers.emplace_back([&, part] {
        try {
          work(count * part / parts, count * (part + 1) / parts);
        } catch (...) {
          errors[part] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

Encoding BertTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return RowEncoder(*state_, options, false).encode(text);
}

Encoding BertTokenizer::encode(std::string_view text, std::string_view pair,
                               const EncodeOptions& options) const {
  return RowEncoder(*state_, options, true).encode(text, pair);
}

std::vector<Encoding> BertTokenizer::encode_batch(std::span<const std::string> texts,
                                                  const EncodeOptions& options, int threads) const {
  std::vector<Encoding> rows(texts.size());
  parallel_for(texts.size(), threads, [&](std::size_t from, std::size_t to) {
    RowEncoder encoder(*state_, options, false);
    for (std::size_t i = from; i < to; ++i) rows[i] = encoder.encode(texts[i]);
  });
  return rows;
}

std::vector<Encoding> BertTokenizer::encode_batch(std::span<const std::string> texts,
                                                  std::span<const std::string> pairs,
                                                  const EncodeOptions& options, int threads) const {
  if (texts.size() != pairs.size()) {
    throw UsageError("tokenizers.unequal-batch", {.what = "first and second texts of a batch",
                                                  .got = str(texts.size(), " and ", pairs.size()),
                                                  .expected = "an equal number of both"});
  }
  std::vector<Encoding> rows(texts.size());
  parallel_for(texts.size(), threads, [&](std::size_t from, std::size_t to) {
    RowEncoder encoder(*state_, options, true);
    for (std::size_t i = from; i < to; ++i) rows[i] = encoder.encode(texts[i], pairs[i]);
  });
  return rows;
}

Encoding BertTokenizer::encode_words(std::span<const std::string> words,
                                     EncodeOptions options) const {
  options.offsets = true;
  return RowEncoder(*state_, options, false).encode_words(words);
}

void BertTokenizer::pad(std::span<Encoding> rows, PadOptions options) const {
  if (!options.side) options.side = state_->options.padding_side;
  if (!options.pad_id) options.pad_id = pad_id();
  hasten::pad(rows, options);
}

std::optional<std::int32_t> BertTokenizer::token_to_id(std::string_view token) const {
  return state_->find(token);
}

std::optional<std::string_view> BertTokenizer::id_to_token(std::int32_t id) const {
  const std::string* token = state_->token(id);
  return token ? std::optional<std::string_view>(*token) : std::nullopt;
}

std::int64_t BertTokenizer::vocab_size() const noexcept { return state_->size(); }

std::int32_t BertTokenizer::special_id(const std::string& token, const char* name) const {
  if (const auto id = state_->find(token)) return *id;
  throw UsageError("tokenizers.missing-token", {.what = str("this tokenizer has no ", name, ": \"",
                                                            token, "\" is not in its vocabulary")});
}

std::int32_t BertTokenizer::pad_id() const {
  return special_id(state_->options.pad_token, "pad_token");
}
std::int32_t BertTokenizer::unk_id() const {
  return special_id(state_->options.unk_token, "unk_token");
}
std::int32_t BertTokenizer::cls_id() const {
  return special_id(state_->options.cls_token, "cls_token");
}
std::int32_t BertTokenizer::sep_id() const {
  return special_id(state_->options.sep_token, "sep_token");
}
std::int32_t BertTokenizer::mask_id() const {
  return special_id(state_->options.mask_token, "mask_token");
}

const TokenizerOptions& BertTokenizer::options() const noexcept { return state_->options; }
const StoredSettings& BertTokenizer::stored_settings() const noexcept { return state_->stored; }

}  // namespace hasten
