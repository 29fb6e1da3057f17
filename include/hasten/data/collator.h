// File: hasten/data/collator.h
// Collators combine rows into a batch.
//
//   TensorDict stacked = DefaultCollator()(rows);                                // equal shapes
//   TensorDict padded = DataCollatorWithPadding{.pad_to_multiple_of = 8}(rows);  // to the longest
//
// Any callable `Batch operator()(std::span<const Row>) const` is a collator. A collator that needs
// random numbers has a second parameter (hasten/data/context.h): `const BatchContext&` for the key
// of the batch, or `std::span<const RowContext>` for the keys of its rows. Lengths are in tokens.
// hasten/data/task_collators.h and hasten/data/language_modeling.h have collators for other tasks.
// Throws DataError "data.collate"; messages number the rows from 0 within the batch. Thread rule:
// values; calls change nothing and may run on several threads.
// Source: default_data_collator and DataCollatorWithPadding (padding on the right) of transformers
// 5.23.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"
#include "hasten/data/token_dataset.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

namespace detail {

// Stacks the tensors that have the same index in each row. A row is the list of its tensors.
HASTEN_API std::vector<at::Tensor> stack_by_position(
    const std::vector<std::vector<at::Tensor>>& rows);

}  // namespace detail

// Stacks each column to [rows, ...]. All rows must have the columns, shapes and dtypes of the first
// one. The columns "label" and "label_ids" are named "labels" in the batch; "label" becomes int64
// or float32. Rows of another type that consists of tensors (pairs, structs, torch::data::Example)
// become a batch of the same type.
struct HASTEN_API DefaultCollator {
  TensorDict operator()(std::span<const TensorDict> rows) const;
  at::Tensor operator()(std::span<const at::Tensor> rows) const;
  template <TensorBatch Row>
  requires std::is_copy_constructible_v<Row> Row operator()(std::span<const Row> rows) const {
    std::vector<std::vector<at::Tensor>> tensors(rows.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      Row copy = rows[row];  // for_each_tensor takes a batch that it may change
      for_each_tensor(copy, [&](const at::Tensor& tensor) { tensors[row].push_back(tensor); });
    }
    const std::vector<at::Tensor> stacked = detail::stack_by_position(tensors);
    Row batch = rows[0];
    std::size_t place = 0;
    for_each_tensor(batch, [&](at::Tensor& tensor) { tensor = stacked[place++]; });
    return batch;
  }
};

// Pads `input_ids`, `attention_mask`, `token_type_ids`, `special_tokens_mask` (with 1), `word_ids`
// (with -1) and token-level labels to one length, and stacks the other columns like
// DefaultCollator. The batch has int64 `input_ids` [rows, length], `attention_mask` [rows, length]
// (created if the rows have none, with 0 for padding), and the other columns of the rows.
struct HASTEN_API DataCollatorWithPadding {
  std::int64_t pad_token_id = 0;
  // Rounds the length up to a multiple of this number. If unset or 1, lengths are not rounded.
  std::optional<std::int64_t> pad_to_multiple_of = std::nullopt;
  // Pads every batch to this length; a longer row is an error. If unset, pads to the longest row of
  // the batch.
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t pad_token_type_id = 0;
  std::int64_t label_pad_token_id = -100;  // Ignored by the losses.

  TensorDict operator()(std::span<const TokenRow> rows) const;
  // Rows with `input_ids` [tokens]. `labels` are token-level if they are [tokens] too.
  TensorDict operator()(std::span<const TensorDict> rows) const;
};

// DataCollatorWithPadding pads the labels of tokens as well.
using DataCollatorForTokenClassification = DataCollatorWithPadding;

}  // namespace hasten
