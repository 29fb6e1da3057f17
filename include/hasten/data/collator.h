// File: hasten/data/collator.h
// Collators: rows in, a batch out.
//
//   DefaultCollator()(rows);                                  // same shapes: stacked
//   DataCollatorWithPadding{.pad_to_multiple_of = 8}(rows);   // padded to the longest of the batch
//
// Any callable `Batch operator()(std::span<const Row>) const` is a collator; with a `const
// BatchContext&` as second argument it also gets the keys of the batch's randomness
// (hasten/data/context.h). Rows count from 0 in messages, as they stand in the batch. Lengths are
// tokens.
// Thread rule: values; a call changes nothing and may be made from several threads.
// Throws DataError "data.collate".
// Source: transformers 5.23 default_data_collator and DataCollatorWithPadding (padding on the
// right).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "hasten/data/token_dataset.h"
#include "hasten/formats/tensor_dict.h"

namespace hasten {

// Stacks each column: [rows, ...]. Every row must have the columns, shapes and dtypes of the first.
// A column "label" or "label_ids" is named "labels" in the batch; "label" becomes int64 or float32
// there.
struct DefaultCollator {
  TensorDict operator()(std::span<const TensorDict> rows) const;
  at::Tensor operator()(std::span<const at::Tensor> rows) const;
};

// Pads `input_ids`, `attention_mask`, `token_type_ids` and token-level labels to one length;
// everything else is stacked as in DefaultCollator. The batch has int64 `input_ids` [rows, length],
// `attention_mask` (made, with 0 on padding, where the rows have none), and what else the rows
// have.
struct DataCollatorWithPadding {
  std::int64_t pad_token_id = 0;
  // The length is rounded up to a multiple of this. Nothing or 1: not rounded.
  std::optional<std::int64_t> pad_to_multiple_of = std::nullopt;
  // Every batch is padded to this length, and a longer row is an error. Nothing: to the longest row
  // of the batch.
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t pad_token_type_id = 0;
  std::int64_t label_pad_token_id = -100;  // ignored by the losses

  TensorDict operator()(std::span<const TokenRow> rows) const;
  // Rows with 1-D `input_ids`; `labels` are token-level where they are 1-D and as long as the ids.
  TensorDict operator()(std::span<const TensorDict> rows) const;
};

}  // namespace hasten
