// File: data/collate_columns.h (internal)
// Functions that the collators share: they check, stack and pad the columns of rows.
//
//   std::vector<at::Tensor> ids = column_of(rows, "input_ids");
//   at::Tensor batch = padded_column("input_ids", ids, 16, pad_token_id, lengths);
//
// Throws DataError "data.collate" that names the row and the column. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hasten/data/collator.h"

namespace hasten::detail {

[[noreturn]] void fail_collate(std::size_t row, const std::string& column, std::string got,
                               std::string expected, std::string hint = "");
std::string type_and_shape(const at::Tensor& tensor);

void require_rows(std::size_t rows);
// Refuses rows that have a column that row 0 lacks.
void require_same_columns(std::span<const TensorDict> rows);

// Returns the name of a column in the batch: "label" and "label_ids" become "labels".
std::string name_in_batch(const std::string& column);
// Returns the name of the row's label column, or nothing if it has none.
std::optional<std::string> label_column_of(const TensorDict& row);
// Returns the column of every row, and refuses a row that lacks it.
std::vector<at::Tensor> column_of(std::span<const TensorDict> rows, const std::string& name);
// Returns the number of tokens of every row; `input_ids` must be [tokens].
std::vector<std::int64_t> lengths_of(std::span<const TensorDict> rows);

// Returns the tensors as [rows, ...]; all must have one shape and one type.
at::Tensor stacked(const std::vector<at::Tensor>& tensors, const std::string& column);
// Pads tensors of whole numbers [lengths[row]] to int64 [rows, length].
at::Tensor padded_column(const std::string& name, std::vector<at::Tensor> column,
                         std::int64_t length, std::int64_t padding,
                         const std::vector<std::int64_t>& lengths);
// Returns int64 [rows, length] with 1 for each row's first lengths[row] tokens, then 0.
at::Tensor mask_of(const std::vector<std::int64_t>& lengths, std::int64_t length);
at::Tensor whole_numbers(std::size_t rows, std::int64_t length, std::int64_t value);

std::int64_t rounded_up(std::int64_t length, std::optional<std::int64_t> multiple);

// Returns the row as tensors of int64 by name. The label keeps its type.
TensorDict tensors_of(const TokenRow& row);

}  // namespace hasten::detail
