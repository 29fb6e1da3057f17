// File: hasten/data/column_dataset.h
// A dataset of tensors that are all in memory: one tensor a column, one row of each a row.
//
//   ColumnDataset dataset({{"input_ids", ids}, {"labels", labels}});   // [rows, length], [rows]
//   ColumnDataset train = load_columns("train.safetensors");
//   auto loader = make_loader(train, {.batch_size = 8, .shuffle = true});
//   for (TensorDict& batch : loader) ...                           // "input_ids" is [8, length]
//
// Batches of rows that follow one another are views of the columns, without a copy: writing to such
// a batch writes to the dataset. Batches of other rows are copies.
// Thread rule: reading is safe from many threads; copies share the columns.
// Throws DataError "data.columns", "data.labels", "data.ids" and what load_safetensors throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "hasten/data/token_dataset.h"
#include "hasten/formats/tensor_dict.h"

namespace hasten {

class ColumnDataset {
 public:
  // Every column has at least one dimension, and all have as many rows. Non-contiguous ones are
  // copied.
  explicit ColumnDataset(TensorDict columns);

  std::int64_t size() const noexcept { return rows_; }
  const TensorDict& columns() const noexcept { return columns_; }
  // One row of each column, as views.
  TensorDict get(std::int64_t index) const;
  TensorDict get_batch(std::span<const std::int64_t> indices) const;

 private:
  TensorDict columns_;
  std::int64_t rows_ = 0;
};

// The columns of a safetensors file, mapped, not read: `input_ids` [rows, length], `attention_mask`
// and `token_type_ids` of the same shape, all int64 or int32, `labels` [rows, ...] (int32 becomes
// int64, which the losses want), and any others. Only `input_ids` must be there.
ColumnDataset load_columns(const std::filesystem::path& path);

// Random `input_ids` [rows, length] from [low, high) and `labels` [rows] of 0 and 1: a stand-in for
// measuring, with the sizes of Hugging Face's "model training anatomy". dummy_rows takes the ids
// that a vocabulary has of these.
ColumnDataset dummy_classification(std::int64_t rows = 512, std::int64_t length = 512,
                                   std::int64_t low = 100, std::int64_t high = 30000,
                                   std::uint64_t seed = 42);
ColumnDataset dummy_rows(std::int64_t rows, std::int64_t length, std::int64_t vocab_size);

// Refuses what would otherwise be an index error deep inside a model (on a GPU an abort), or wrong
// numbers. `problem_type` is that of config.json; empty: what transformers infers from the labels.
// - single_label_classification: every label is one of 0 ... num_labels - 1 or -100 (ignored).
// - regression (inferred for one label): num_labels finite numbers a row, [rows] where it is one.
// - multi_label_classification (inferred for floating labels): num_labels a row, each 0 to 1.
// The error names the source, if one is given, the row and the value.
void check_labels(const ColumnDataset& dataset, std::int64_t num_labels,
                  const std::string& source = "", const std::string& problem_type = "");
void check_labels(const TokenDataset& dataset, std::int64_t num_labels,
                  const std::string& source = "", const std::string& problem_type = "");
// Every id is one of 0 ... vocab_size - 1.
void check_ids(const ColumnDataset& dataset, std::int64_t vocab_size,
               const std::string& source = "");
void check_ids(const TokenDataset& dataset, std::int64_t vocab_size,
               const std::string& source = "");
// Rows are no longer than the model takes.
void check_lengths(const ColumnDataset& dataset, std::int64_t max_length,
                   const std::string& source = "");

}  // namespace hasten
