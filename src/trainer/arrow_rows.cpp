#include "trainer/arrow_rows.h"

#include <torch/torch.h>

#include <algorithm>

#include "data/arrow_files.h"
#include "data/column_names.h"
#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "machine/arrow_data.h"
#include "trainer/data_files.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char *kMask = "attention_mask", *kTypes = "token_type_ids";

std::optional<std::string> label_column_in(const detail::ArrowFiles& files,
                                           const std::string& given) {
  for (const std::string& name : {std::string(kLabelsColumn), given}) {
    if (files.has(name) && files.column(name).is_tensor()) return name;
  }
  return std::nullopt;
}

std::vector<std::string> id_columns(const std::string& file,
                                    const std::optional<std::string>& labels) {
  const detail::ArrowFiles files(file);
  std::vector<std::string> names = {kInputIdsColumn};
  for (const char* name : {kMask, kTypes}) {
    if (files.has(name)) names.emplace_back(name);
  }
  if (labels) names.push_back(*labels);
  return names;
}

// Returns the folder of the first of these splits that exists, if `name` is a folder of splits.
std::string split_of(const std::string& name, const std::vector<std::string>& splits) {
  std::error_code ignored;
  if (name.empty() || !fs::is_regular_file(fs::path(name) / kDatasetSplitsFile, ignored))
    return name;
  for (const std::string& split : splits) {
    const fs::path folder = fs::path(name) / split;
    if (fs::is_regular_file(folder / kDatasetStateFile, ignored)) return folder.string();
  }
  (void)detail::ArrowFiles(name, splits[0]);  // throws, and names the splits
  return name;
}

void require_arrow_rows(std::int64_t rows, const std::string& source) {
  if (rows == 0)
    throw DataError("data.empty", {.what = source, .got = "no rows", .expected = "at least one"});
}

// Checks that a column of the row has a whole number or a boolean for each token. The row may lack
// it.
void check_token_column(const TensorDict& row, const char* name, const std::string& source,
                        std::int64_t index) {
  const auto found = row.find(name);
  if (found == row.end()) return;
  const at::Tensor &values = found->second, &ids = row.at(kInputIdsColumn);
  if (values.sizes() == ids.sizes() && !values.is_floating_point()) return;
  throw DataError("data.lengths",
                  {.what = str(source, ": ", name, " of row ", index),
                   .got = str(c10::toString(values.scalar_type()), " ", c10::str(values.sizes())),
                   .expected = c10::str("a whole number for each token, ", ids.sizes())});
}

[[noreturn]] void fail_arrow_labels(const std::string& source, std::int64_t row, std::string got,
                                    std::string expected) {
  throw DataError("data.labels", {.what = str(source, ": the labels of row ", row),
                                  .got = std::move(got),
                                  .expected = std::move(expected)});
}

}  // namespace

bool has_arrow_column(const std::string& file, const std::string& column) {
  if (!is_arrow_data(file)) return false;
  return detail::ArrowFiles(file).has(column);
}

TrainOptions with_splits(TrainOptions options) {
  options.data = split_of(options.data, {"train"});
  options.eval_data = split_of(options.eval_data, {"validation", "test"});
  return options;
}

TensorDict arrow_tensors(const std::string& file, const std::string& label_column) {
  const ArrowDataset rows = load_arrow_dataset(file);
  require_arrow_rows(rows.size(), file);
  std::map<std::string, std::vector<at::Tensor>> columns;
  for (std::int64_t index = 0; index < rows.size(); ++index) {
    for (auto& [name, tensor] : rows.get(index)) {
      std::vector<at::Tensor>& column = columns[name];
      if (!column.empty() && column[0].sizes() != tensor.sizes()) {
        throw DataError("data.columns", {.what = str(file, ", row ", index, ", column ", name),
                                         .got = "shape " + c10::str(tensor.sizes()),
                                         .expected = c10::str(column[0].sizes(), ", as in row 0")});
      }
      column.push_back(tensor);
    }
  }
  TensorDict tensors;
  for (const auto& [name, column] : columns) tensors[name] = at::stack(column);
  if (tensors.contains(label_column) && !tensors.contains(kLabelsColumn)) {
    auto labels = tensors.extract(label_column);
    labels.key() = kLabelsColumn;
    tensors.insert(std::move(labels));
  }
  return tensors;
}

ArrowRows::ArrowRows(const std::string& file, const std::string& label_column)
    : source_(file),
      rows_(load_arrow_dataset(
          file,
          {.columns = id_columns(file, label_column_in(detail::ArrowFiles(file), label_column))})),
      label_column_(label_column_in(detail::ArrowFiles(file), label_column)) {}

TensorDict ArrowRows::get(std::int64_t index) const {
  TensorDict row = rows_.get(index);
  if (labels_.defined()) {
    row.erase(*label_column_);
    row[kLabelsColumn] = labels_[index];
  } else if (label_column_ && *label_column_ != kLabelsColumn) {
    auto labels = row.extract(*label_column_);
    labels.key() = kLabelsColumn;
    row.insert(std::move(labels));
  } else if (!label_column_) {
    for (const std::string& name : rows_.columns()) {
      if (name != kInputIdsColumn && name != kMask && name != kTypes) row.erase(name);
    }
  }
  return row;
}

std::vector<std::string> ArrowRows::class_names() const {
  return label_column_ ? rows_.class_names(*label_column_) : std::vector<std::string>();
}

void ArrowRows::check(const PreTrainedModel& model) const {
  require_arrow_rows(size(), source_);
  for (std::int64_t index = 0; index < size(); ++index) {
    const TensorDict row = rows_.get(index);
    const at::Tensor& ids = row.at(kInputIdsColumn);
    const auto fail = [&](const char* code, std::string got, std::string expected) {
      throw DataError(code, {.what = str(source_, ": input_ids of row ", index),
                             .got = std::move(got),
                             .expected = std::move(expected)});
    };
    if (ids.dim() != 1 || ids.scalar_type() != at::kLong)
      fail("data.ids", str(c10::toString(ids.scalar_type()), " ", c10::str(ids.sizes())),
           "a list of integers");
    if (ids.numel() == 0 || ids.numel() > model.max_length())
      fail("data.lengths", str(ids.numel(), " tokens"),
           str("1 to ", model.max_length(), ", the limit of the model"));
    const auto* const first = ids.const_data_ptr<std::int64_t>();
    const auto outside = std::find_if(first, first + ids.numel(), [&](std::int64_t id) {
      return id < 0 || id >= model.vocab_size();
    });
    if (outside != first + ids.numel())
      fail("data.ids", str(*outside),
           str("0 to ", model.vocab_size() - 1, ", the ids of the vocabulary"));
    for (const char* name : {kMask, kTypes}) check_token_column(row, name, source_, index);
  }
}

void ArrowRows::check_row_labels(const PreTrainedModel& model) {
  if (!label_column_) {
    throw DataError("data.labels", {.what = source_ + ": there is no column \"labels\"",
                                    .hint = "name the column of the labels (--label_column)"});
  }
  std::vector<at::Tensor> labels;
  for (std::int64_t index = 0; index < size(); ++index) {
    labels.push_back(rows_.get(index).at(*label_column_));
    if (labels.back().sizes() != labels[0].sizes())
      fail_arrow_labels(source_, index, "shape " + c10::str(labels.back().sizes()),
                        c10::str(labels[0].sizes(), ", as in row 0"));
  }
  const ColumnDataset column({{kLabelsColumn, at::stack(labels)}});
  check_labels(column, model.num_labels(), source_, model.problem_type());
  labels_ = row_labels(column.columns().at(kLabelsColumn), model, source_);
}

void ArrowRows::check_token_labels(std::int64_t classes) const {
  if (!label_column_)
    throw DataError("data.labels", {.what = source_ + ": there is no column \"labels\""});
  for (std::int64_t index = 0; index < size(); ++index) {
    const TensorDict row = rows_.get(index);
    const at::Tensor& labels = row.at(*label_column_);
    if (labels.sizes() != row.at(kInputIdsColumn).sizes() || labels.scalar_type() != at::kLong)
      fail_arrow_labels(source_, index,
                        str(c10::toString(labels.scalar_type()), " ", c10::str(labels.sizes())),
                        c10::str("an integer for each token, ", row.at(kInputIdsColumn).sizes()));
    const auto* const first = labels.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < labels.numel(); ++i) {
      if (first[i] == kIgnoredLabel || (first[i] >= 0 && first[i] < classes)) continue;
      fail_arrow_labels(source_, index, str(first[i]), str("0 to ", classes - 1, ", or -100"));
    }
  }
}

}  // namespace hasten
