// File: hasten/data/column_dataset.h
// A dataset of tensors in memory, one tensor per column.
//
//   ColumnDataset dataset({{"input_ids", ids}, {"labels", labels}});   // [rows, length], [rows]
//   ColumnDataset train = load_columns("train.safetensors");
//   auto loader = make_loader(train, {.batch_size = 8, .shuffle = true});
//   for (TensorDict& batch : loader) train_on(batch);                  // input_ids: [8, length]
//
// A batch of consecutive rows consists of views of the columns: writing to it writes to the
// dataset. A batch of other rows is a copy.
// Thread rule: reading is safe on many threads; copies share the columns.
// Throws DataError "data.columns", "data.labels", "data.ids", "data.lengths", UsageError "data.row"
// for a row that does not exist, and what load_safetensors throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/data/token_dataset.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

class HASTEN_API ColumnDataset {
 public:
  // All columns must have at least one dimension and the same number of rows. Columns that are not
  // contiguous are copied.
  explicit ColumnDataset(TensorDict columns);

  std::int64_t size() const noexcept { return rows_; }
  const TensorDict& columns() const noexcept { return columns_; }
  // One row of each column, as views.
  TensorDict get(std::int64_t index) const;
  // The given rows of each column, [number of indices, ...].
  TensorDict get_batch(std::span<const std::int64_t> indices) const;

 private:
  TensorDict columns_;
  std::int64_t rows_ = 0;
};

// Opens the columns of a safetensors file without copying them: `input_ids` [rows, length];
// `attention_mask` and `token_type_ids` of the same shape; all three int64 or int32; `labels`
// [rows, ...], where int32 becomes int64 as the losses require; and any other columns. Only
// `input_ids` is required.
HASTEN_API ColumnDataset load_columns(const std::filesystem::path& path);

// Random `input_ids` [rows, length] in [low, high) and `labels` [rows] of 0 and 1, for
// measurements. The defaults are those of Hugging Face's "model training anatomy". dummy_rows
// limits the ids to a vocabulary.
HASTEN_API ColumnDataset dummy_classification(std::int64_t rows = 512, std::int64_t length = 512,
                                              std::int64_t low = 100, std::int64_t high = 30000,
                                              std::uint64_t seed = 42);
HASTEN_API ColumnDataset dummy_rows(std::int64_t rows, std::int64_t length,
                                    std::int64_t vocab_size);

// Checks labels that would otherwise cause an index error deep inside a model (on a GPU an abort)
// or wrong numbers. The error names `source`, the row and the value. `problem_type` is that of
// config.json; empty: inferred from the labels as in transformers.
// - single_label_classification: each label is 0 to num_labels - 1, or -100 (ignored).
// - regression (inferred if num_labels is 1): num_labels finite numbers per row; [rows] if it is 1.
// - multi_label_classification (inferred for floating labels): num_labels numbers per row, each in
//   [0, 1].
HASTEN_API void check_labels(const ColumnDataset& dataset, std::int64_t num_labels,
                             const std::string& source = "", const std::string& problem_type = "");
HASTEN_API void check_labels(const TokenDataset& dataset, std::int64_t num_labels,
                             const std::string& source = "", const std::string& problem_type = "");
// Checks that each id is 0 to vocab_size - 1.
HASTEN_API void check_ids(const ColumnDataset& dataset, std::int64_t vocab_size,
                          const std::string& source = "");
HASTEN_API void check_ids(const TokenDataset& dataset, std::int64_t vocab_size,
                          const std::string& source = "");
// Checks that no row is longer than the model allows.
HASTEN_API void check_lengths(const ColumnDataset& dataset, std::int64_t max_length,
                              const std::string& source = "");

}  // namespace hasten
