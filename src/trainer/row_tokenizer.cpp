#include "trainer/row_tokenizer.h"

#include "hasten/base/error.h"

namespace hasten {
namespace {

std::variant<BertTokenizer, Tokenizer> open_tokenizer(const std::filesystem::path& folder) {
  try {
    return BertTokenizer::from_pretrained(folder);
  } catch (const DataError& error) {
    const bool is_other_kind = error.code().find(".unknown-") != std::string::npos;
    if (!is_other_kind) throw;
  }
  return Tokenizer::from_pretrained(folder);
}

}  // namespace

RowTokenizer::RowTokenizer(const std::filesystem::path& folder)
    : tokenizer_(open_tokenizer(folder)) {}

std::vector<Encoding> RowTokenizer::encode_batch(std::span<const std::string> texts,
                                                 const EncodeOptions& options, int threads) const {
  return std::visit([&](const auto& own) { return own.encode_batch(texts, options, threads); },
                    tokenizer_);
}

std::vector<Encoding> RowTokenizer::encode_batch(std::span<const std::string> texts,
                                                 std::span<const std::string> pairs,
                                                 const EncodeOptions& options, int threads) const {
  return std::visit(
      [&](const auto& own) { return own.encode_batch(texts, pairs, options, threads); },
      tokenizer_);
}

Encoding RowTokenizer::encode_words(std::span<const std::string> words,
                                    const EncodeOptions& options) const {
  return std::visit([&](const auto& own) { return own.encode_words(words, options); }, tokenizer_);
}

std::int32_t RowTokenizer::pad_id() const {
  if (const auto* bert = std::get_if<BertTokenizer>(&tokenizer_)) return bert->pad_id();
  if (const auto id = std::get<Tokenizer>(tokenizer_).pad_id()) return *id;
  throw DataError("tokenizers.missing-token",
                  {.what = "the tokenizer names no padding token",
                   .hint = "set pad_token in tokenizer_config.json, and pad_token_id in "
                           "config.json"});
}

MaskingVocabulary RowTokenizer::masking_vocabulary() const {
  const auto vocabulary =
      std::visit([](const auto& own) { return MaskingVocabulary(own); }, tokenizer_);
  if (vocabulary.mask_token_id >= 0) return vocabulary;
  throw DataError("tokenizers.missing-token",
                  {.what = "the tokenizer has no mask token",
                   .hint = "set mask_token in tokenizer_config.json to a token of the vocabulary"});
}

}  // namespace hasten
