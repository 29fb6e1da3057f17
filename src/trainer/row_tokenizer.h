// File: trainer/row_tokenizer.h (internal)
// The tokenizer of a model folder, for the texts of every task: BERT's tokenizer, or the tokenizer
// of any other tokenizer.json.
//
//   const RowTokenizer tokenizer(model_folder(options.model));
//   const std::vector<Encoding> rows = tokenizer.encode_batch(texts, {.max_length = 128}, 2);
//
// Throws IoError, and DataError "tokenizers.*". Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hasten/data/language_modeling.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "hasten/tokenizers/tokenizer.h"

namespace hasten {

class RowTokenizer {
 public:
  // BertTokenizer reads the files of BERT, because their tokenizer_config.json may change what
  // tokenizer.json says. Tokenizer reads all others.
  explicit RowTokenizer(const std::filesystem::path& folder);

  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options, int threads) const;
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     std::span<const std::string> pairs,
                                     const EncodeOptions& options, int threads) const;
  // Encodes a text that is split into words. Each token has the number of its word.
  Encoding encode_words(std::span<const std::string> words, const EncodeOptions& options) const;
  // Throws if there is no padding token.
  std::int32_t pad_id() const;
  // Throws if there is no mask token.
  MaskingVocabulary masking_vocabulary() const;

 private:
  std::variant<BertTokenizer, Tokenizer> tokenizer_;
};

}  // namespace hasten
