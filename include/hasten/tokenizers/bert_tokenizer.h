// File: hasten/tokenizers/bert_tokenizer.h
// BERT's WordPiece tokenizer, from text to ids and back. Ids and offsets are the same as with
// Hugging Face's tokenizers.
//
//   auto tokenizer = BertTokenizer::from_pretrained("bert-base-uncased");   // a folder
//   Encoding row = tokenizer.encode("Hello, world!");   // [CLS] hello , world ! [SEP]
//   Encoding pair = tokenizer.encode("A question?", "An answer.",
//                                    {.truncation = Truncation::only_second, .max_length = 64});
//   std::vector<Encoding> rows = tokenizer.encode_batch(texts, {}, 4);      // four threads
//   tokenizer.pad(rows, {.multiple_of = 8});
//   std::string text = tokenizer.decode(row.input_ids, {.skip_special_tokens = true});
//
// Texts are UTF-8. In invalid text, each truncated character and each byte that cannot start one
// counts as one U+FFFD, which BERT removes.
//
// The truncation and padding of tokenizer.json are kept (stored_settings, save_pretrained) but
// apply only if they are passed to encode and pad, as in Transformers; the plain tokenizers library
// applies them to every call. Overflowing parts (stride) are not returned.
//
// Throws IoError for files that cannot be read or written; DataError "tokenizers.*" for files that
// are not a BERT tokenizer or contradict each other, and for texts that cannot be truncated as
// asked; UsageError "tokenizers.*" for invalid options.
//
// Thread rule: immutable. A copy shares its data with the original, and every method is safe on
// many threads at once.
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

#include "hasten/base/detail/export.h"
#include "hasten/tokenizers/detail/encoding.h"
#include "hasten/tokenizers/detail/options.h"

namespace hasten {

class HASTEN_API BertTokenizer {
 public:
  // Reads tokenizer.json of the folder, or else vocab.txt. Reads tokenizer_config.json and
  // special_tokens_map.json too; their settings take precedence over tokenizer.json, as in
  // Transformers, except for unk_token. Also accepts the name of a model in the Hugging Face cache
  // instead of a folder (hasten/machine/model_folder.h).
  static BertTokenizer from_pretrained(const std::filesystem::path& folder_or_name);
  // Reads a vocab.txt: one token per line. The id of a token is the number of its line, from 0.
  static BertTokenizer from_vocab(const std::filesystem::path& file,
                                  const TokenizerOptions& options = {});
  // Reads a tokenizer.json only.
  static BertTokenizer from_json(const std::filesystem::path& file);

  // Encode one text, or a pair of texts, without padding.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view pair,
                  const EncodeOptions& options = {}) const;
  // Return one row per text, in order, without padding. An exception on a worker thread is rethrown
  // to the caller.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}, int threads = 1) const;
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     std::span<const std::string> pairs,
                                     const EncodeOptions& options = {}, int threads = 1) const;
  // Encodes a text that is already split into words, as Transformers does with is_split_into_words:
  // each word is encoded on its own, so no token belongs to two of them. `offsets` and `word_ids`
  // are always filled; an offset counts from the beginning of its word, and a word's number is its
  // place in `words`. A word that becomes empty in the normalizer has no token.
  Encoding encode_words(std::span<const std::string> words, EncodeOptions options = {}) const;
  // Pads the rows to one length, by default with this tokenizer's padding token and side.
  void pad(std::span<Encoding> rows, PadOptions options = {}) const;

  // Returns the text of these ids. Ids without a token are skipped.
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(std::int32_t id) const;
  // The number of tokens, including the added ones.
  std::int64_t vocab_size() const noexcept;

  // The ids of the special tokens. They throw UsageError "tokenizers.missing-token" if the
  // vocabulary lacks one.
  std::int32_t pad_id() const;
  std::int32_t unk_id() const;
  std::int32_t cls_id() const;
  std::int32_t sep_id() const;
  std::int32_t mask_id() const;

  const TokenizerOptions& options() const noexcept;
  const StoredSettings& stored_settings() const noexcept;

  // Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and vocab.txt to the
  // folder, which is created if it is missing. from_pretrained reads the folder, here and in
  // Transformers.
  void save_pretrained(const std::filesystem::path& folder) const;

  struct State;
  explicit BertTokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::int32_t special_id(const std::string& token, const char* name) const;

  std::shared_ptr<const State> state_;
};

}  // namespace hasten
