#include "hasten/data/arrow_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/arrow_files.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/dataset.h"

namespace hasten {

struct ArrowDataset::Impl {
  detail::ArrowFiles files;
  std::vector<std::string> names;
  std::vector<detail::ArrowDatasetColumn> columns;  // the columns with these names
};

namespace {

at::Tensor tensor_of(const detail::ArrowFiles::Row& row, const detail::ArrowDatasetColumn& column) {
  const ArrowCell cell = row.find(column);
  switch (column.value) {
    case ArrowValue::integer: {
      at::Tensor values = at::empty(cell.shape, at::TensorOptions(at::kLong));
      row.copy(column, cell, values.mutable_data_ptr<std::int64_t>());
      return values;
    }
    case ArrowValue::number: {
      at::Tensor values = at::empty(cell.shape, at::TensorOptions(at::kFloat));
      row.copy(column, cell, values.mutable_data_ptr<float>());
      return values;
    }
    default: {
      at::Tensor values = at::empty(cell.shape, at::TensorOptions(at::kBool));
      row.copy(column, cell, values.mutable_data_ptr<bool>());
      return values;
    }
  }
}

std::vector<std::string> chosen_columns(const detail::ArrowFiles& files,
                                        const ArrowOptions& options) {
  if (!options.columns.empty()) return options.columns;
  std::vector<std::string> names;
  const std::vector<std::string>& chosen = files.chosen();
  for (const detail::ArrowDatasetColumn& column : files.columns()) {
    const bool is_chosen =
        chosen.empty() || std::find(chosen.begin(), chosen.end(), column.name) != chosen.end();
    if (column.is_tensor() && is_chosen) names.push_back(column.name);
  }
  return names;
}

}  // namespace

std::int64_t ArrowDataset::size() const noexcept { return impl_->files.rows(); }

const std::vector<std::string>& ArrowDataset::columns() const noexcept { return impl_->names; }

TensorDict ArrowDataset::get(std::int64_t index) const {
  detail::require_row(index, size());
  const detail::ArrowFiles::Row row = impl_->files.row(index);
  TensorDict tensors;
  for (const detail::ArrowDatasetColumn& column : impl_->columns)
    tensors[column.name] = tensor_of(row, column);
  return tensors;
}

std::vector<std::string> ArrowDataset::class_names(const std::string& column) const {
  return impl_->files.column(column).names;
}

ArrowDataset load_arrow_dataset(const std::filesystem::path& path, const ArrowOptions& options) {
  auto impl = std::make_shared<ArrowDataset::Impl>(
      ArrowDataset::Impl{.files = detail::ArrowFiles(path, options.split)});
  detail::ArrowFiles& files = impl->files;
  impl->names = chosen_columns(files, options);
  for (const std::string& name : impl->names) {
    const detail::ArrowDatasetColumn& column = files.column(name);
    if (!column.is_tensor()) {
      throw DataError("data.arrow-column",
                      {.what = files.source() + ", column \"" + name + "\"",
                       .got = "the type " + column.type,
                       .expected = "integers, floating-point numbers or booleans, also in lists",
                       .hint = "tokenize texts, or leave the column out"});
    }
    files.read(column);
    impl->columns.push_back(column);
  }
  if (impl->names.empty()) {
    throw DataError("data.arrow-column", {.what = files.source(),
                                          .got = "no column that can be a tensor",
                                          .expected = "at least one",
                                          .hint = "read texts with read_text_table"});
  }
  return ArrowDataset(std::move(impl));
}

}  // namespace hasten
