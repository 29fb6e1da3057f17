#include "hasten/tokenizers/bert_tokenizer.h"

#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/encode_options.h"
#include "tokenizers/encode_rows.h"
#include "tokenizers/state.h"
#include "tokenizers/text_encoder.h"

namespace hasten {
namespace {

using tokenizers::TextEncoder;
using tokenizers::TextTokens;
using State = BertTokenizer::State;

// Encodes one row after another and reuses its buffers.
class RowEncoder {
 public:
  RowEncoder(const State& state, const EncodeOptions& options, bool is_pair)
      : state_(state),
        options_(tokenizers::resolve(options, state.options, state.templates, is_pair)),
        encoder_(state, options.offsets) {}

  Encoding encode(std::string_view text) {
    encoder_.run(text, token_limit(), first_);
    return tokenizers::assemble(state_.templates, first_, nullptr, options_);
  }
  // The options must ask for offsets.
  Encoding encode_words(std::span<const std::string> words) {
    first_.clear();
    for (std::size_t i = 0; i < words.size() && first_.ids.size() < token_limit(); ++i) {
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
  std::size_t token_limit() const {
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
  return tokenizers::encode_rows<RowEncoder>(*state_, texts, options, threads);
}

std::vector<Encoding> BertTokenizer::encode_batch(std::span<const std::string> texts,
                                                  std::span<const std::string> pairs,
                                                  const EncodeOptions& options, int threads) const {
  return tokenizers::encode_rows<RowEncoder>(*state_, texts, pairs, options, threads);
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
  throw UsageError("tokenizers.missing-token",
                   {.what = str("the ", name, " of this tokenizer"),
                    .got = str("\"", token, "\", which is not in its vocabulary"),
                    .expected = "a token of the vocabulary"});
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
