// File: hasten/tokenizers/bert_tokenizer.h
// BERT's WordPiece tokenizer: text to ids and back, equal to Hugging Face's tokenizers to the last
// id and offset.
//
//   auto tokenizer = BertTokenizer::from_pretrained("bert-base-uncased");   // a folder
//   Encoding row = tokenizer.encode("Hello, world!");   // [CLS] hello , world ! [SEP]
//   Encoding pair = tokenizer.encode("A question?", "An answer.",
//                                    {.truncation = Truncation::only_second, .max_length = 64});
//   std::vector<Encoding> rows = tokenizer.encode_batch(texts, {}, 4);      // four threads
//   tokenizer.pad(rows, {.multiple_of = 8});
//   std::string text = tokenizer.decode(row.input_ids, {.skip_special_tokens = true});
//
// Texts are UTF-8. Each longest start of a character that goes no further, and each byte that
// starts none, counts as one U+FFFD, which BERT drops.
//
// What tokenizer.json says of truncation and padding is kept (stored_settings, save_pretrained)
// but not used unless passed on: so does Transformers, while the bare tokenizers library applies
// both to every call. Overflowing parts (stride) are not made.
//
// Thread rule: immutable; a copy shares all with its original, and every method is safe from many
// threads at once.
//
// Throws IoError for files that cannot be read or written; DataError for files that are no BERT
// tokenizer or contradict themselves, and for texts that cannot be cut as asked; UsageError for
// options that make no sense.
//
// Source: Hugging Face tokenizers 0.23.3 (BertNormalizer, BertPreTokenizer, WordPiece,
// TemplateProcessing) and Transformers 5 (BertTokenizer).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/tokenizers/encoding.h"
#include "hasten/tokenizers/options.h"

namespace hasten {

// The truncation and padding that tokenizer.json asks for.
struct StoredSettings {
  EncodeOptions encode;
  std::optional<PadOptions> padding;
};

class BertTokenizer {
 public:
  // tokenizer.json of the folder or, where there is none, vocab.txt. tokenizer_config.json and
  // special_tokens_map.json add what the first does not say; what tokenizer_config.json says of
  // lower case, accents and ideographs goes before tokenizer.json, as in Transformers.
  static BertTokenizer from_pretrained(const std::filesystem::path& folder);
  // A vocab.txt: one token a line, its id the line's number from 0.
  static BertTokenizer from_vocab(const std::filesystem::path& file,
                                  const TokenizerOptions& options = {});
  // A tokenizer.json alone.
  static BertTokenizer from_json(const std::filesystem::path& file);

  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view pair,
                  const EncodeOptions& options = {}) const;
  // One row a text, in order, not padded. Exceptions of a thread reach the caller.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}, int threads = 1) const;
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     std::span<const std::string> pairs,
                                     const EncodeOptions& options = {}, int threads = 1) const;
  // Pads with this tokenizer's padding token.
  void pad(std::span<Encoding> rows, PadOptions options = {}) const;

  // The text of these ids. Ids that no token has are left out.
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(std::int32_t id) const;
  // With the added tokens.
  std::int64_t vocab_size() const noexcept;

  // The ids of the special tokens; UsageError where the vocabulary lacks one.
  std::int32_t pad_id() const;
  std::int32_t unk_id() const;
  std::int32_t cls_id() const;
  std::int32_t sep_id() const;
  std::int32_t mask_id() const;

  const TokenizerOptions& options() const noexcept;
  const StoredSettings& stored_settings() const noexcept;

  // Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and vocab.txt into the
  // folder (made where needed), for from_pretrained here and in Transformers.
  void save_pretrained(const std::filesystem::path& folder) const;

  struct State;
  explicit BertTokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::int32_t special_id(const std::string& token, const char* name) const;

  std::shared_ptr<const State> state_;
};

}  // namespace hasten
