// File: hasten/data/task_collators.h
// Collators for sequence-to-sequence models, multiple choice, and batches without padding.
//
//   DataCollatorForSeq2Seq translate{.pad_token_id = 0, .decoder_start_token_id = 0};
//   DataCollatorForMultipleChoice choose{.pad_to_multiple_of = 8};
//   DataCollatorWithFlattening flatten{.return_flash_attn_kwargs = true};
//   TensorDict flat = flatten(rows);             // input_ids [1, tokens of all rows]
//
// Rows are TensorDicts with whole numbers of any width; batches are int64 unless stated otherwise.
// Throws DataError "data.collate"; messages number the rows from 0 within the batch. Thread rule:
// values; calls change nothing and may run on several threads.
// Source: DataCollatorForSeq2Seq, DataCollatorForMultipleChoice and DataCollatorWithFlattening of
// transformers 5.23, with padding on the right; shift_tokens_right of its models.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "hasten/base/detail/export.h"
#include "hasten/data/collator.h"

namespace hasten {

// Pads `input_ids` [tokens] and the other token columns like DataCollatorWithPadding, and `labels`
// [target tokens] to their own length, with label_pad_token_id. Rows need not have labels.
struct HASTEN_API DataCollatorForSeq2Seq {
  std::int64_t pad_token_id = 0;
  // Rounds both lengths up to a multiple of this number.
  std::optional<std::int64_t> pad_to_multiple_of = std::nullopt;
  // Pads texts and labels to this length; a longer row is an error. If unset, pads to the longest
  // of the batch.
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t pad_token_type_id = 0;
  std::int64_t label_pad_token_id = -100;
  // Adds `decoder_input_ids`: this token, then the labels without their last one, with pad_token_id
  // instead of -100. If unset, the batch has no such column.
  std::optional<std::int64_t> decoder_start_token_id = std::nullopt;

  TensorDict operator()(std::span<const TensorDict> rows) const;
};

// Rows have `input_ids` [choices, tokens], more columns of the same shape, and one label. All rows
// have the same number of choices. The batch has [rows, choices, length] and `labels` [rows].
// Choices of different lengths in one row are padded in the row, with 0 in its `attention_mask`.
struct HASTEN_API DataCollatorForMultipleChoice {
  std::int64_t pad_token_id = 0;
  std::optional<std::int64_t> pad_to_multiple_of = std::nullopt;
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t pad_token_type_id = 0;

  TensorDict operator()(std::span<const TensorDict> rows) const;
};

// Puts the rows one after the other into a single row without padding: `input_ids`, `labels` and
// `position_ids` [1, tokens]. Labels are the rows' labels, or else their ids; the first label of
// each row is separator_id, because no earlier token of the row predicts it. Other columns of the
// rows are dropped. The model must not let tokens attend to tokens of another row. For this it
// needs the columns below, or position_ids that start again in each row.
struct HASTEN_API DataCollatorWithFlattening {
  bool return_position_ids = true;
  std::int64_t separator_id = -100;
  // Adds `cu_seq_lens_q` and `cu_seq_lens_k`, int32 [rows + 1], the first token of each row and the
  // end; and the scalars `max_length_q` and `max_length_k`.
  bool return_flash_attn_kwargs = false;
  bool return_seq_idx = false;          // Adds `seq_idx`, int32 [1, tokens], the row of each token.
  std::int64_t position_ids_start = 0;  // The position of each row's first token.

  TensorDict operator()(std::span<const TensorDict> rows) const;
  TensorDict operator()(std::span<const TokenRow> rows) const;
};

}  // namespace hasten
