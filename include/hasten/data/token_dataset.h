// File: hasten/data/token_dataset.h
// A dataset of tokenized texts of different lengths, stored one after the other as int32: 4 bytes
// per token and 8 per row.
//
//   TokenDataset dataset;
//   for (const std::string& text : texts) dataset.push_back(tokenizer.encode(text));
//   dataset.set_labels(labels);                                   // [rows] or [rows, ...]
//   auto loader = make_loader(std::move(dataset), {.batch_size = 8, .shuffle = true},
//                             DataCollatorWithPadding{});
//
// Throws DataError "data.token-row" and "data.labels", UsageError "data.row" for a row that does
// not exist. Thread rule: reading is safe on many threads; push_back and set_labels are not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/tokenizers/detail/encoding.h"

namespace hasten {

// A row. It is valid while its dataset exists and no rows are added. A span is empty if the dataset
// has no such column.
struct TokenRow {
  std::span<const std::int32_t> input_ids = {};
  std::span<const std::int32_t> token_type_ids = {};
  std::span<const std::int32_t> token_labels = {};  // One per token.
  at::Tensor label = {};                            // Undefined: none.
};

class HASTEN_API TokenDataset {
 public:
  using Ids = std::span<const std::int32_t>;

  // Adds a row of at least one token. Types and labels have one entry per token; either all rows
  // have them or none.
  void push_back(Ids input_ids, Ids token_type_ids = {}, Ids token_labels = {});
  // Adds the ids and types of an encoding without its padding.
  void push_back(const Encoding& encoding);
  // Sets the labels of all rows, [rows] or [rows, ...] of any dtype; int32 becomes int64. Call it
  // after the last push_back.
  void set_labels(at::Tensor labels);
  const at::Tensor& labels() const noexcept { return labels_; }

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(ends_.size()); }
  TokenRow get(std::int64_t index) const;
  std::int64_t length(std::int64_t index) const;  // In tokens.
  // The number of tokens in all rows.
  std::int64_t tokens() const noexcept { return static_cast<std::int64_t>(ids_.size()); }

 private:
  std::vector<std::int32_t> ids_, types_, token_labels_;
  std::vector<std::int64_t> ends_;  // The end of each row in ids_.
  at::Tensor labels_;
};

}  // namespace hasten
