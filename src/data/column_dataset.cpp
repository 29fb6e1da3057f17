#include "hasten/data/column_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <cstring>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/dataset.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

// Rows of ids and labels are small, so one memcpy per row is faster than the dispatch, the index
// tensor and the threads of index_select.
at::Tensor gather_rows(const at::Tensor& column, std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> sizes = column.sizes().vec();
  sizes[0] = static_cast<std::int64_t>(indices.size());
  at::Tensor out = at::empty(sizes, column.options());
  const std::size_t row_bytes =
      column.size(0) > 0 ? column.nbytes() / static_cast<std::size_t>(column.size(0)) : 0;
  const char* from = static_cast<const char*>(column.const_data_ptr());
  char* to = static_cast<char*>(out.mutable_data_ptr());
  if (row_bytes == 0) return out;
  for (const std::int64_t index : indices) {
    std::memcpy(to, from + static_cast<std::size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

at::Tensor gather_on_device(const at::Tensor& column, std::span<const std::int64_t> indices) {
  at::Tensor numbers =
      at::empty({static_cast<std::int64_t>(indices.size())}, at::TensorOptions().dtype(at::kLong));
  std::memcpy(numbers.mutable_data_ptr(), indices.data(), indices.size_bytes());
  return column.index_select(0, numbers.to(column.device()));
}

bool is_contiguous_range(std::span<const std::int64_t> indices) {
  for (std::size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] != indices[i - 1] + 1) return false;
  }
  return !indices.empty();
}

[[noreturn]] void fail_columns(const std::string& what, const std::string& got,
                               const std::string& expected) {
  throw DataError("data.columns", {.what = what, .got = got, .expected = expected});
}

bool holds_ids(const at::Tensor& column) {
  return column.scalar_type() == at::kLong || column.scalar_type() == at::kInt;
}

}  // namespace

ColumnDataset::ColumnDataset(TensorDict columns) : columns_(std::move(columns)) {
  if (columns_.empty()) fail_columns("a dataset of columns", "no column", "at least one");
  const std::string& first = columns_.begin()->first;
  for (auto& [name, column] : columns_) {
    const std::string what = "column \"" + name + "\"";
    if (!column.defined()) fail_columns(what, "an undefined tensor", "a tensor");
    if (column.dim() == 0) fail_columns(what, "a scalar", "a tensor of one row or more");
    if (&name == &first) rows_ = column.size(0);
    if (column.size(0) != rows_) {
      fail_columns(what, str(column.size(0), " rows"), str(rows_, ", as column \"", first, "\""));
    }
    // Rows are copied as bytes, which are not the values of a lazily conjugated or negated tensor.
    column = column.resolve_conj().resolve_neg().contiguous();
  }
}

TensorDict ColumnDataset::get(std::int64_t index) const {
  detail::require_row(index, rows_);
  TensorDict row;
  for (const auto& [name, column] : columns_) {
    row.emplace_hint(row.end(), name, column.select(0, index));
  }
  return row;
}

TensorDict ColumnDataset::get_batch(std::span<const std::int64_t> indices) const {
  for (const std::int64_t index : indices) detail::require_row(index, rows_);
  const bool range = is_contiguous_range(indices);
  const auto count = static_cast<std::int64_t>(indices.size());
  TensorDict batch;
  for (const auto& [name, column] : columns_) {
    at::Tensor rows = range             ? column.narrow(0, indices[0], count)
                      : column.is_cpu() ? gather_rows(column, indices)
                                        : gather_on_device(column, indices);
    batch.emplace_hint(batch.end(), name, std::move(rows));
  }
  return batch;
}

ColumnDataset load_columns(const std::filesystem::path& path) {
  TensorDict columns = load_safetensors(path);
  const std::string file = path.string() + ": ";
  const auto ids = columns.find("input_ids");
  if (ids == columns.end()) {
    std::vector<std::string> names;
    for (const auto& [name, column] : columns) names.push_back(name);
    fail_columns(file + "there is no column \"input_ids\"", "[" + join(names, ", ") + "]", "");
  }
  if (ids->second.dim() != 2) {
    fail_columns(file + "input_ids", c10::str(ids->second.sizes()), "[rows, length]");
  }
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    const auto column = columns.find(name);
    if (column == columns.end()) continue;
    if (!holds_ids(column->second)) {
      fail_columns(file + name, c10::toString(column->second.scalar_type()), "int64 or int32");
    }
    if (column->second.sizes() != ids->second.sizes()) {
      fail_columns(file + name, c10::str(column->second.sizes()),
                   c10::str(ids->second.sizes()) + ", as input_ids");
    }
  }
  if (const auto labels = columns.find("labels");
      labels != columns.end() && labels->second.scalar_type() == at::kInt) {
    labels->second = labels->second.to(at::kLong);
  }
  try {
    return ColumnDataset(std::move(columns));
  } catch (const DataError& error) {
    ErrorText text = error.text();
    text.what = file + text.what;
    throw DataError(error.code(), std::move(text));
  }
}

ColumnDataset dummy_classification(std::int64_t rows, std::int64_t length, std::int64_t low,
                                   std::int64_t high, std::uint64_t seed) {
  if (rows < 1 || length < 1 || low >= high) {
    throw UsageError("data.option", {.what = "a dummy dataset",
                                     .got = str("rows ", rows, ", length ", length, ", ids from ",
                                                low, " to ", high),
                                     .expected = "rows and length above 0, and low below high"});
  }
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto options = at::TensorOptions().dtype(at::kLong);
  at::Tensor ids = at::randint(low, high, {rows, length}, generator, options);
  at::Tensor labels = at::randint(0, 2, {rows}, generator, options);
  return ColumnDataset({{"input_ids", std::move(ids)}, {"labels", std::move(labels)}});
}

ColumnDataset dummy_rows(std::int64_t rows, std::int64_t length, std::int64_t vocab_size) {
  return dummy_classification(rows, length, std::min<std::int64_t>(100, vocab_size / 2),
                              std::min<std::int64_t>(30000, vocab_size));
}

}  // namespace hasten
