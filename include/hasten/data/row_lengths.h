// File: hasten/data/row_lengths.h
// The number of tokens of each row of a dataset, for grouping rows by length.
//
//   std::vector<std::int64_t> lengths = row_lengths(dataset, "length");
//   auto loader = make_loader(dataset, {.order = length_grouped_order(lengths, 8)});
//
// A row's length is its value in the column of that name, which has whole numbers [rows], or else
// the number of its `input_ids`. Rows may be TokenRows or TensorDicts. The lengths of a
// TokenDataset or ColumnDataset are available directly; rows of any other dataset are read one
// after the other. Throws DataError "data.lengths" for rows without a length, and for a dataset
// with rows of a different type. Thread rule: the same as for the dataset.
// Source: LengthGroupedSampler of transformers 5.23.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/dataset.h"
#include "hasten/data/token_dataset.h"

namespace hasten {

namespace detail {
HASTEN_API std::vector<std::int64_t> lengths_of_tokens(const TokenDataset& dataset);
HASTEN_API std::vector<std::int64_t> lengths_of_columns(const ColumnDataset& dataset,
                                                        const std::string& column);
HASTEN_API std::int64_t length_of_row(const TensorDict& row, const std::string& column,
                                      std::int64_t index);
[[noreturn]] HASTEN_API void fail_lengths(const std::string& what);
}  // namespace detail

template <class Dataset>
std::vector<std::int64_t> row_lengths(Dataset& dataset, const std::string& column) {
  if constexpr (std::is_same_v<std::remove_const_t<Dataset>, TokenDataset>) {
    return detail::lengths_of_tokens(dataset);
  } else if constexpr (std::is_same_v<std::remove_const_t<Dataset>, ColumnDataset>) {
    return detail::lengths_of_columns(dataset, column);
  } else if constexpr (MapDataset<Dataset>) {
    std::vector<std::int64_t> lengths;
    constexpr bool has_tokens = std::is_same_v<RowOf<Dataset>, TokenRow>;
    if constexpr (has_tokens || std::is_same_v<RowOf<Dataset>, TensorDict>) {
      const auto rows = static_cast<std::int64_t>(dataset.size());
      for (std::int64_t index = 0; index < rows; ++index) {
        const auto row = detail::get_row(dataset, index, RowContext{.row = index});
        if constexpr (has_tokens) {
          lengths.push_back(static_cast<std::int64_t>(row.input_ids.size()));
        } else {
          lengths.push_back(detail::length_of_row(row, column, index));
        }
      }
      return lengths;
    }
  }
  detail::fail_lengths("a dataset whose rows are neither TokenRows nor TensorDicts");
}

}  // namespace hasten
