// File: hasten/data/token_dataset.h
// Tokenized texts of different lengths, kept one after the other as int32: 4 bytes a token and 8 a
// row.
//
//   TokenDataset dataset;
//   for (const std::string& text : texts) dataset.push_back(tokenizer.encode(text));
//   dataset.set_labels(labels);                                   // [rows] or [rows, ...]
//   auto loader = make_loader(std::move(dataset), {.batch_size = 8, .shuffle = true},
//                             DataCollatorWithPadding{});
//
// Thread rule: reading is safe from many threads; push_back and set_labels are not.
// Throws DataError "data.token-row" and "data.labels".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "hasten/tokenizers/encoding.h"

namespace hasten {

// A row, valid as long as its dataset is and is not added to. Empty spans: the dataset has no such
// column.
struct TokenRow {
  std::span<const std::int32_t> input_ids;
  std::span<const std::int32_t> token_type_ids;
  std::span<const std::int32_t> token_labels;  // one a token
  at::Tensor label;                            // undefined: none
};

class TokenDataset {
 public:
  using Ids = std::span<const std::int32_t>;

  // Adds a row of at least one token. Types and labels are one a token; rows have all of them or
  // none has.
  void push_back(Ids input_ids, Ids token_type_ids = {}, Ids token_labels = {});
  // The ids and types of an encoding, without its padding.
  void push_back(const Encoding& encoding);
  // Labels of the rows: [rows] or [rows, ...], of any dtype; int32 becomes int64.
  void set_labels(at::Tensor labels);
  const at::Tensor& labels() const noexcept { return labels_; }

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(ends_.size()); }
  TokenRow get(std::int64_t index) const;
  std::int64_t length(std::int64_t index) const;  // tokens
  std::int64_t tokens() const noexcept { return static_cast<std::int64_t>(ids_.size()); }

 private:
  std::vector<std::int32_t> ids_, types_, token_labels_;
  std::vector<std::int64_t> ends_;  // where each row ends in ids_
  at::Tensor labels_;
};

}  // namespace hasten
