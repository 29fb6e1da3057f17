// File: hasten/tokenizers/tokenizer.h
// A tokenizer from a tokenizer.json of Hugging Face: byte-pair encoding (GPT-2, Llama), unigram
// (T5, XLM-RoBERTa), WordPiece or word level, with its normalizers, pre-tokenizers, post-processors
// and decoders. Ids, offsets and decoded texts are the same as with Hugging Face's tokenizers.
//
//   auto tokenizer = Tokenizer::from_pretrained("gpt2");                // a folder
//   Encoding row = tokenizer.encode("Hello, world!");
//   std::vector<Encoding> rows = tokenizer.encode_batch(texts, {}, 4);  // four threads
//   std::string text = tokenizer.decode(row.input_ids, {.skip_special_tokens = true});
//
// Texts are UTF-8. In invalid text, each truncated character and each byte that cannot start one
// counts as one U+FFFD.
//
// The truncation and padding of the file are kept (stored_settings) but apply only if they are
// passed to encode and pad, as in Transformers; the plain tokenizers library applies them to every
// call. Overflowing parts (stride) are not returned.
//
// docs/formats.md lists the parts of tokenizer.json that are read. A file with an unknown part is
// rejected, and the error names the part and its place. BertTokenizer (bert_tokenizer.h) reads only
// BERT's files, and can write them.
//
// Throws IoError for files that cannot be read; DataError "tokenizers.*" for files that are wrong
// or have unknown parts, for texts that cannot be truncated as asked or have more than 1 GiB, also
// after normalization or decoding, and for characters that the vocabulary lacks if it has no
// unknown token; UsageError "tokenizers.*" for invalid options.
//
// Thread rule: immutable. A copy shares its data with the original, and every method is safe on
// many threads at once. A cache keeps words that were split before, up to 18 MB for each of up to
// 64 threads that encode at the same time. The buffers of a text of more than 256 KiB are not kept.
//
// Source: Hugging Face tokenizers 0.23.3.
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

// The special tokens that tokenizer_config.json or special_tokens_map.json name. A token that
// neither file names is empty.
struct SpecialTokens {
  std::optional<std::string> bos = {}, eos = {}, unk = {}, sep = {}, pad = {}, cls = {}, mask = {};
  std::vector<std::string> extra = {};  // extra_special_tokens and additional_special_tokens
};

class HASTEN_API Tokenizer {
 public:
  // Reads a tokenizer.json only.
  static Tokenizer from_file(const std::filesystem::path& file);
  // Reads tokenizer.json of the folder, and the special tokens and sides of its
  // tokenizer_config.json and special_tokens_map.json. Also accepts the name of a model in the
  // Hugging Face cache instead of a folder (hasten/machine/model_folder.h).
  static Tokenizer from_pretrained(const std::filesystem::path& folder_or_name);

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
  // place in `words`. A word that becomes empty in the normalizer has no token. A byte-level
  // tokenizer puts a blank before each word only if its add_prefix_space is true.
  Encoding encode_words(std::span<const std::string> words, EncodeOptions options = {}) const;
  // Pads the rows to one length, by default with this tokenizer's padding token and side.
  void pad(std::span<Encoding> rows, PadOptions options = {}) const;

  // Returns the text of these ids. Ids without a token are skipped.
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;
  // Returns the tokens of these ids; an id without a token gives an empty text.
  std::vector<std::string> tokens(std::span<const std::int32_t> ids) const;

  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(std::int32_t id) const;
  // The largest id plus 1, including the added tokens.
  std::int64_t vocab_size() const noexcept;

  const SpecialTokens& special_tokens() const noexcept;
  // The ids of special tokens, or nullopt if no file names the token or the vocabulary lacks it.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  // The padding token of tokenizer_config.json, or else of tokenizer.json's padding.
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> mask_id() const;
  // The ids of all special_tokens(), ascending: all_special_ids of Transformers. An added token
  // that is only marked as special in tokenizer.json is not one of them.
  std::vector<std::int32_t> special_ids() const;
  // The limit of tokenizer_config.json in tokens; 0 if unknown.
  std::int64_t model_max_length() const noexcept;

  const StoredSettings& stored_settings() const noexcept;

  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::optional<std::int32_t> id_of(const std::optional<std::string>& token) const;

  std::shared_ptr<const State> state_;
};

}  // namespace hasten
